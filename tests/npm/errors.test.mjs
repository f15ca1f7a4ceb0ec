// Invalid arguments: the error that is thrown, and that nothing is consumed.
import assert from "node:assert/strict";
import { test } from "node:test";

import { load } from "./installed.mjs";

const { Limiter, Reporter } = await load();
const { toml } = await load("tidegate/toml");

const NOW = 1_700_000_000_000_000;
const FIVE_PER_HOUR = { limits: [{ algorithm: "fixed_window", limit: 5, period: "1h" }] };

const NOT_NUMBERS = [
  [null, "null"], ["1", "a string"], [true, "a boolean"], [1n, "a bigint"], [{}, "an object"],
  [[1], "an array"], [() => 1, "a function"], [Symbol("1"), "a symbol"], [new Date(1), "an object"],
];
const NOT_WHOLE = [
  [NaN, "NaN"], [Infinity, "Infinity"], [-Infinity, "-Infinity"], [-1, "-1"], [1.5, "1.5"],
  [0.1, "0.1"], [2 ** 53, "9007199254740992"], [1e300, "1e+300"], [-0.5, "-0.5"], [5e-324, "5e-324"],
];

/** Checks that `call` throws the expected error and leaves the limiter as it was. */
function refuses(call, expected) {
  const limiter = new Limiter(FIVE_PER_HOUR);
  limiter.check("a", { cost: 2, now: NOW });
  assert.throws(() => call(limiter), expected);
  assert.equal(limiter.peek("a", { now: NOW }).remaining, 3);
  assert.equal(limiter.size, 1);
}

for (const [field, code, call] of [
  ["cost", "INVALID_COST", (limiter, value) => limiter.check("a", { cost: value, now: NOW })],
  ["now", "INVALID_NOW", (limiter, value) => limiter.check("a", { cost: 1, now: value })],
  ["now", "INVALID_NOW", (limiter, value) => limiter.peek("a", { now: value })],
  ["now", "INVALID_NOW", (limiter, value) => limiter.sweep({ now: value })],
]) {
  test(`${field} must be a whole number: ${call}`, () => {
    for (const [value, found] of NOT_NUMBERS) {
      const message = `\`${field}\`: expected a number, found ${found}`;
      refuses((limiter) => call(limiter, value), { name: "ArgumentError", code, message });
    }
    for (const [value, found] of NOT_WHOLE) {
      const message =
        `\`${field}\`: expected a whole number from 0 to 9007199254740991, found ${found}`;
      refuses((limiter) => call(limiter, value), { name: "ArgumentError", code, message });
    }
  });
}

test("a time in milliseconds is an error that says so, and a clock that begins near 0 is none", (t) => {
  const DAY = 86_400_000;
  t.mock.timers.enable({ apis: ["Date"], now: NOW / 1000 });
  const places = { limits: [...FIVE_PER_HOUR.limits, { algorithm: "concurrency", capacity: 5, time_to_live: "1h" }] };
  const limiter = new Limiter(places);
  const reporter = new Reporter({ limit: "5/s" });
  for (const now of [Date.now(), Date.now() - DAY, Date.now() + DAY]) {
    const message = `\`now\`: expected microseconds, found ${now}, which is \`Date.now()\` in milliseconds: multiply it by 1000`;
    for (const call of [
      () => limiter.acquire("a", { now }), () => limiter.peek("a", { now }), () => limiter.release("a", "x", { now }),
      () => limiter.sweep({ now }), () => limiter.update(places, { now }), () => limiter.commit("a", "x", 1, { now }),
      () => [...limiter.limited({ now })], () => reporter.decide(1, now), () => reporter.dueReports(now), () => reporter.apply(0, now),
    ]) {
      assert.throws(call, { name: "ArgumentError", code: "INVALID_NOW", message }, String(call));
    }
  }
  assert.equal(limiter.size, 0);
  const window = new Limiter(FIVE_PER_HOUR);
  for (const now of [0, 1_000_000, Date.now() - DAY - 1, Date.now() + DAY + 1, NOW, Number.MAX_SAFE_INTEGER]) {
    assert.equal(window.check(`at ${now}`, { now }).allowed, true);
  }
  t.mock.timers.setTime(5_000);
  for (const now of [5_000, NOW / 1000]) assert.equal(window.check(`beside a mocked clock, at ${now}`, { now }).allowed, true);
});

test("a key must be a string of 1 to 512 bytes of UTF-8", () => {
  const calls = [(limiter, key) => limiter.check(key, { cost: 1, now: NOW }), (limiter, key) => limiter.peek(key, { now: NOW })];
  const code = "INVALID_KEY";
  for (const call of calls) {
    for (const [key, found] of [[undefined, "undefined"], [1, "a number"], [Object("a"), "an object"],
      ...NOT_NUMBERS.filter(([value]) => typeof value !== "string")]) {
      const message = `\`key\`: expected a string, found ${found}`;
      refuses((limiter) => call(limiter, key), { name: "ArgumentError", code, message });
    }
    for (const [key, bytes] of [["", 0], ["x".repeat(513), 513], ["é".repeat(257), 514],
      [`${"x".repeat(511)}é`, 513], [`${"x".repeat(509)}🦀`, 513], ["日".repeat(100_000), 300_000]]) {
      const message = `\`key\`: expected 1 to 512 bytes, found ${bytes}`;
      refuses((limiter) => call(limiter, key), { name: "ArgumentError", code, message });
    }
    for (const key of ["ip:", "ip:banana", "ip:192.0.2.05", "ip:fe80::1%eth0", "ip:2001:db8::/64"]) {
      const message = new RegExp(`^\`key\`: expected an address such as .* after \`ip:\`, found "${key}"`);
      refuses((limiter) => call(limiter, key), { name: "ArgumentError", code, message });
    }
    for (const key of ["\ud800", "a\udc00b", `\udc00\ud800`]) {
      refuses((limiter) => call(limiter, key), { name: "ArgumentError", code, message: /lone surrogate/ });
    }
  }
  const longest = new Limiter(FIVE_PER_HOUR);
  for (const key of ["x".repeat(512), "é".repeat(256), "🦀".repeat(128)]) {
    assert.equal(longest.check(key, { cost: 1, now: NOW }).remaining, 4);
  }
});

test("a cost above the capacity can never be granted", () => {
  const expected = { name: "ArgumentError", code: "COST_EXCEEDS_CAPACITY", message: /cost of 6 .* most at once is 5/ };
  refuses((limiter) => limiter.check("a", { cost: 6, now: NOW }), expected);
  refuses((limiter) => limiter.check("new", { cost: 6, now: NOW }), expected);
  refuses((limiter) => limiter.check("a", { cost: Number.MAX_SAFE_INTEGER, now: NOW }), { code: expected.code });
});

test("the fields of an operation must have known names and the right types", () => {
  const limits = [
    ...FIVE_PER_HOUR.limits, { algorithm: "concurrency", capacity: 3, time_to_live: "1h" },
    { algorithm: "suppression", rate: "1/s" }, { algorithm: "budget", most: 2, time: "1s" },
  ];
  const limiter = new Limiter({ limits });
  limiter.acquire("a", { lease: "held", now: NOW });
  const before = limiter.decide("a", { cost: 0, now: NOW });
  const code = "INVALID_REQUEST";
  const offered = { admitted: 1, suppressed: 0 };
  const quantities = [
    ["cost", (cost) => limiter.decide("a", { cost, lease: "x", now: NOW }), "INVALID_COST"],
    ["signalPpm", (signalPpm) => limiter.decide("a", { signalPpm, lease: "x", now: NOW }), code, 1_000_000],
    ["draw", (draw) => limiter.decide("a", { draw, lease: "x", now: NOW }), code, 2 ** 32 - 1],
    ["count", (count) => limiter.renew("a", "held", { count, now: NOW }), code, 2 ** 32 - 1],
    ["wants", (wants) => limiter.budget("a", "held", { wants, now: NOW })],
    ["left", (left) => limiter.budget("a", "held", { wants: 0, grantedAtUs: NOW, left, now: NOW })],
    ["grantedAtUs", (grantedAtUs) => limiter.budget("a", "held", { wants: 0, grantedAtUs, left: 0, now: NOW })],
    ["admitted", (admitted) => limiter.report("a", { ...offered, admitted, now: NOW })],
    ["suppressed", (suppressed) => limiter.report("a", { ...offered, suppressed, now: NOW })],
    ["offeredAtUs", (offeredAtUs) => limiter.report("a", { ...offered, offeredAtUs, now: NOW })],
    ["now", (now) => limiter.decide("a", { lease: "x", now }), "INVALID_NOW"],
    ["now", (now) => limiter.release("a", "held", { now }), "INVALID_NOW"],
  ];
  for (const [field, call, own = code, most = Number.MAX_SAFE_INTEGER] of quantities) {
    for (const [value, found] of NOT_NUMBERS) {
      const message = `\`${field}\`: expected a number, found ${found}`;
      assert.throws(() => call(value), { name: "ArgumentError", code: own, message });
    }
    for (const [value, found] of [...NOT_WHOLE, ...(most < 2 ** 53 - 1 ? [[most + 1, `${most + 1}`]] : [])]) {
      const message = `\`${field}\`: expected a whole number from 0 to ${most}, found ${found}`;
      assert.throws(() => call(value), { name: "ArgumentError", code: own, message });
    }
  }
  for (const cost of [0, -1, 1.5, NaN]) {
    const message = `\`cost\`: expected a whole number from 1 to ${Number.MAX_SAFE_INTEGER}, found ${cost}`;
    assert.throws(() => limiter.acquire("a", { cost, lease: "x", now: NOW }), { name: "ArgumentError", code: "INVALID_COST", message });
  }
  for (const [name, call] of [
    ["lease", (lease) => limiter.acquire("a", { lease, now: NOW })], ["lease", (lease) => limiter.renew("a", lease, { now: NOW })],
    ["lease", (lease) => limiter.release("a", lease, { now: NOW })], ["class", (of) => limiter.decide("a", { class: of, lease: "x", now: NOW })],
  ]) {
    for (const value of [null, 1, {}, Symbol("a")]) {
      assert.throws(() => call(value), { name: "ArgumentError", code, message: new RegExp(`^\`${name}\`: expected a string, found `) });
    }
    assert.throws(() => call("\ud800"), { name: "ArgumentError", code, message: /lone surrogate/ });
    assert.throws(() => call(""), { name: "ArgumentError", code, message: new RegExp(`^\`${name}\`: expected`) });
    assert.throws(() => call("x".repeat(129)), { name: "ArgumentError", code, message: new RegExp(`^\`${name}\`: expected`) });
  }
  for (const [call, message] of [
    [() => limiter.decide("a", { price: 1, now: NOW }),
      "`request`: expected `cost`, `class`, `lease`, `signalPpm`, `draw`, `now` or `limits`, found `price`"],
    [() => limiter.decide("a", { constructor: 1, now: NOW }), /found `constructor`/],
    [() => limiter.decide("a", null), "`request`: expected an object, found null"],
    [() => limiter.decide("a", 5), "`request`: expected an object, found a number"],
    [() => limiter.renew("a", "held", { lease: "x", now: NOW }), "`options`: expected `count`, `now` or `limits`, found `lease`"],
    [() => limiter.refund("a", undefined, { now: NOW }), "`units`: expected a number, found undefined"],
    [() => limiter.report("a"), "`report`: expected an object, found undefined"],
    [() => limiter.report("a", { admitted: 1, now: NOW }), "`suppressed`: expected a number, found undefined"],
    [() => limiter.release("a", undefined, { now: NOW }), "`lease`: expected a string, found undefined"],
  ]) {
    assert.throws(call, { name: "ArgumentError", code, message });
  }
  assert.throws(() => limiter.decide("a", { cost: 6, lease: "x", now: NOW }),
    { name: "ArgumentError", code: "COST_EXCEEDS_CAPACITY", message: /cost of 6 .* most at once is 5/ });
  assert.throws(() => limiter.decide("", { now: NOW }), { name: "ArgumentError", code: "INVALID_KEY", message: /found 0$/ });
  assert.throws(() => limiter.decide(5, { now: NOW }), { name: "ArgumentError", code: "INVALID_KEY" });
  assert.deepEqual(limiter.decide("a", { cost: 0, lease: before.lease, now: NOW }), before);
});

/** Checks that the policy is refused with an error at this place. */
function refused(policy, place, message) {
  assert.throws(() => new Limiter(policy), (error) => {
    assert.ok(error instanceof Error);
    assert.deepEqual([error.code, error.line, error.column, error.path], ["INVALID_POLICY", ...place], error.message);
    assert.match(error.message, message);
    return true;
  });
}

test("an error in a policy's text names its line, column and field", () => {
  const refusedToml = (text, ...expected) => refused(toml(text), ...expected);
  refusedToml("limits = [\n  { algorithm = 'fixed_window', limit = 0, period = '1s' },\n]",
    [2, 41, "limits[0].limit"], /^line 2, column 41: limits\[0\]\.limit: expected .*, found the integer `0`$/);
  refusedToml("limits = []\nlimit = 3", [2, 1, "limit"], /; found the field "limit"$/);
  refusedToml("limits = [", [1, 11, ""], /line 1, column 11/);
  refusedToml("[policies.api]\nlimits = [{ algorithm = 'fixed_window', limit = 1, period = '1 x' }]",
    [2, 61, "policies.api.limits[0].period"], /^.*expected a span of time in whole microseconds.*; found "1 x"$/);
  refusedToml("auth = 'maybe'\n[policies.api]", [1, 8, "auth"], /expected `token` or `none`, found "maybe"/);
  refused('{ "limits": [],\n "cost": 0 }', [2, 10, "cost"], /: expected a whole number from 1 .*, found the integer `0`$/);
  refusedToml("", [1, 1, ""], /missing field `limits`/);
  // tables in another order than JSON has them, names in parts, and characters of several bytes before the place
  refusedToml("[policies.b]\nlimits = []\n[policies.a]\nlimits = [{ algorithm = 'é🦀' , limit = 1 }]",
    [4, 25, "policies.a.limits[0].algorithm"], /^line 4, column 25: policies\.a\.limits\[0\]\.algorithm: .*found "é🦀"$/);
  refusedToml("# é🦀\npolicies.a = { deny = ['é🦀'], limits = [{ algorithm = 'fixed_window', limit = 1, period = '1s', '\"\\' = 2 }] }",
    [2, 97, 'policies.a.limits[0]."\\'], /found the field "\\"\\\\"$/);
  refusedToml("\ufeff\nlimits = []\n\n  [[overrides]]\n", [4, 3, "overrides"], /./);
  refusedToml("limits = [{ algorithm = 'fixed_window', limit = 1.5, period = '1s' }]", [1, 49, "limits[0].limit"], /found the number `1\.5`$/);
  for (const [value, found] of [["nan", "the number `nan`"], ["-inf", "the number `-inf`"], ["1979-05-27", "a date or a time"], ["0xffffffffffffffffff", "the number `0xffffffffffffffffff`"]]) {
    refusedToml(`limits = [\n { limit = ${value} }]`, [2, 12, "limits[0].limit"],
      new RegExp(`^line 2, column 12: limits\\[0\\]\\.limit: expected a string, a whole number, a boolean, an array or a table; found ${found}$`));
  }
});

test("the limiter refuses a text of `toml` that is not TOML, and a text without `toml` that is", () => {
  const limiter = new Limiter(FIVE_PER_HOUR);
  for (const call of [(policy) => new Limiter(policy), (policy) => limiter.update(policy, { now: NOW })]) {
    for (const [given, found] of [[undefined, "undefined"], [5, "a number"], [FIVE_PER_HOUR, "an object"], [toml(""), "an object"]]) {
      assert.throws(() => call(toml(given)), { name: "PolicyError", code: "INVALID_POLICY", message: `\`text\`: expected a string, found ${found}` });
    }
    assert.throws(() => call(toml("policies.toml")), { code: "INVALID_POLICY", message: /found the path policies\.toml: read the file first$/ });
    assert.throws(() => call(toml("#".repeat(2 ** 20 + 1))), { code: "INVALID_POLICY", message: /^`text`: expected at most/ });
    assert.throws(() => call(toml("limits = []\nlimit = 3")), { code: "INVALID_POLICY", line: 2, column: 1 });
    assert.throws(() => call("limits = []"), {
      code: "INVALID_POLICY", line: 1, column: 1,
      message: "line 1, column 1: expected JSON, found another text; `toml` of `tidegate/toml` reads TOML",
    });
    // a copy lacks the functions that read TOML, so it is no policy
    assert.throws(() => call({ ...JSON.parse(JSON.stringify(toml("limits = []"))) }), { code: "INVALID_POLICY", path: "format" });
  }
  const policy = toml('[policies.a]\nlimits = [{ algorithm = "fixed_window", limit = 1, period = "1h" }]');
  limiter.update(policy, { now: NOW });
  for (const one of [limiter, new Limiter(policy), new Limiter(policy)]) assert.equal(one.check("new", { now: NOW }).limit, 1);
});

test("an error in a policy's object names its field, and line 0", () => {
  const bucket = (fields) => ({ limits: [{ algorithm: "token_bucket", capacity: 5, rate: "1/s", ...fields }] });
  refused({}, [0, 0, ""], /^missing field `limits`/);
  refused({ policies: { api: { limits: [] } } }, [0, 0, "policies.api"], /^policies\.api: `limits`: expected 1 to 16 limits, found 0$/);
  refused({ policies: { api: { limits: [] } }, colour: 1 }, [0, 0, "colour"], /^colour: expected one of `auth`, .*; found the field "colour"$/);
  refused(bucket({ rate: "fast" }), [0, 0, "limits[0].rate"], /^limits\[0\]\.rate: expected .*; found "fast"$/);
  refused(bucket({ rate: 5 }), [0, 0, "limits[0].rate"], /: expected a string, found the integer `5`$/);
  const fields = "`algorithm`, `name`, `depth`, `shadow`, `warn_at`, `payer`, `capacity`, `rate`, `start`";
  refused(bucket({ burst: 5 }), [0, 0, "limits[0].burst"], new RegExp(`: expected one of ${fields}; found the field "burst"$`));
  refused(bucket({ capacity: 1.5 }), [0, 0, "limits[0].capacity"], /1\.5/);
  refused(bucket({ capacity: -1 }), [0, 0, "limits[0].capacity"], /-1/);
  refused(bucket({ capacity: 2 ** 53 }), [0, 0, "limits[0].capacity"], /9007199254740992/);
});

test("a value that JSON cannot write is an error and not a default", () => {
  for (const [value, found] of [[NaN, "NaN"], [Infinity, "Infinity"], [5n, "a bigint"], [() => 5, "a function"],
    [Symbol("five"), "a symbol"]]) {
    const limit = { algorithm: "sliding_window", limit: 5, period: "1s", segments: value };
    refused({ limits: [limit] }, [0, 0, "limits[0].segments"], new RegExp(found));
  }
});

test("a policy must be an object or a string", () => {
  const expected = "an object or a string";
  for (const [value, found] of [[undefined, "undefined"], [null, "null"], [5, "a number"], [true, "a boolean"],
    [1n, "a bigint"], [[FIVE_PER_HOUR], "an array"], [() => FIVE_PER_HOUR, "a function"]]) {
    const message = `\`policy\`: expected ${expected}, found ${found}`;
    assert.throws(() => new Limiter(value), { name: "PolicyError", code: "INVALID_POLICY", message });
  }
  const endless = { limits: [] };
  endless.limits.push(endless);
  assert.throws(() => new Limiter(endless), { name: "PolicyError", code: "INVALID_POLICY", message: /circular/ });
});

test("a path in the place of a policy is told as such", () => {
  for (const path of ["policies.toml", "./config/policies.json", "/etc/tidegate/my policies.toml", "C:\\tidegate\\policies.toml"]) {
    const message = `\`policy\`: expected the text of a policy, found the path ${path}: read the file first`;
    assert.throws(() => new Limiter(path), { name: "PolicyError", code: "INVALID_POLICY", path: "", message });
    assert.throws(() => new Limiter(FIVE_PER_HOUR).update(path), { code: "INVALID_POLICY", message });
  }
  refused(toml("x = 'policies.toml"), [1, 19, ""], /^line 1, column /);
});

test("a policy file with several policies needs the name of one", () => {
  const file = { policies: { api: FIVE_PER_HOUR, login: FIVE_PER_HOUR } };
  for (const [policy, options, message] of [
    [file, {}, '`options.policy`: expected one of ["api", "login"], found none'],
    [file, { policy: "Api" }, '`options.policy`: expected one of ["api", "login"], found "Api"'],
    [file, { policy: "" }, '`options.policy`: expected one of ["api", "login"], found ""'],
  ]) {
    assert.throws(() => new Limiter(policy, options), { name: "PolicyError", code: "UNKNOWN_POLICY", message });
  }
  assert.throws(() => new Limiter({ policies: {} }),
    { code: "INVALID_POLICY", message: "policies: expected at least one policy, found none" });
  assert.throws(() => new Limiter(FIVE_PER_HOUR, { policy: "api" }),
    { code: "INVALID_POLICY", message: /found the field "limits"|missing field `policies`/ });
});

test("options must have known names and the right types", () => {
  const code = "INVALID_OPTION";
  for (const [options, message] of [
    [null, "`options`: expected an object, found null"],
    [5, "`options`: expected an object, found a number"],
    [{ maxkeys: 5 }, "`options`: expected `policy`, `maxBytes` or `maxWaiters`, found `maxkeys`"],
    [{ policy: 5 }, "`options.policy`: expected a string, found a number"],
    [{ maxBytes: "5" }, "`options.maxBytes`: expected a number, found a string"],
    [{ maxBytes: null }, "`options.maxBytes`: expected a number, found null"],
  ]) {
    assert.throws(() => new Limiter(FIVE_PER_HOUR, options), { name: "ArgumentError", code, message });
  }
  for (const [maxBytes, found] of [[0, "0"], ...NOT_WHOLE]) {
    const message = new RegExp(`^\`options\\.maxBytes\`: expected a whole number from \\d+ to 2147483648, found ${found.replace(/[+.]/g, "\\$&")}$`);
    assert.throws(() => new Limiter(FIVE_PER_HOUR, { maxBytes }), { name: "ArgumentError", code, message });
  }
});

test("an error repeats at most 100 characters of what the caller gave", () => {
  const limiter = new Limiter(FIVE_PER_HOUR);
  const [long, limit] = ["x".repeat(100_000), FIVE_PER_HOUR.limits[0]];
  for (const [call, code] of [
    [() => new Limiter(FIVE_PER_HOUR, { [long]: 1 }), "INVALID_OPTION"],
    [() => limiter.decide("a", { [long]: 1 }), "INVALID_REQUEST"],
    [() => limiter.check("a", { [`${"x".repeat(99)}🦀${long}`]: 1 }), "INVALID_REQUEST"],
    [() => limiter.update(FIVE_PER_HOUR, { [long]: 1 }), "INVALID_OPTION"],
    [() => limiter.block("a", "x".repeat(1_000)), "INVALID_REQUEST"],
    [() => limiter.check(`ip:${"x".repeat(500)}`), "INVALID_KEY"],
    [() => new Limiter({ policies: { a: FIVE_PER_HOUR, b: FIVE_PER_HOUR } }, { policy: "x".repeat(1_000) }), "UNKNOWN_POLICY"],
    [() => new Limiter({ ...FIVE_PER_HOUR, [long]: 1 }), "INVALID_POLICY"],
    [() => new Limiter({ limits: [{ ...limit, [long]: 1 }] }), "INVALID_POLICY"],
    [() => new Limiter({ limits: [{ ...limit, algorithm: long }] }), "INVALID_POLICY"],
    [() => new Limiter({ limits: [{ ...limit, period: long }] }), "INVALID_POLICY"],
    [() => new Limiter({ ...FIVE_PER_HOUR, overrides: { [long]: { limit: long } } }), "INVALID_POLICY"],
    [() => new Limiter({ ...FIVE_PER_HOUR, description: { [long]: "\ud800" } }), "INVALID_POLICY"],
    [() => limiter.check("a", { limits: [{ ...limit, algorithm: "x".repeat(3_000) }] }), "INVALID_LIMITS"],
  ]) {
    assert.throws(call, (error) => {
      assert.equal(error.code, code, error.message);
      assert.ok(!/x{101}/.test(error.message) && error.message.isWellFormed(), `${code}: ${error.message.length} characters: ${error.message.slice(0, 300)}`);
      return true;
    });
  }
});

test("no text of a policy makes the module trap", () => {
  for (const text of ["[".repeat(100_000), `{"limits":${"[".repeat(100_000)}`, `a${".a".repeat(100_000)} = 1`,
    `a = ${"{ a = ".repeat(50_000)}`, "\0", "\ud800", "\ufeff{}", "{", "[[policies]]", "policies = 1"]) {
    assert.throws(() => new Limiter(text), { name: "PolicyError", code: "INVALID_POLICY" }, text.slice(0, 20));
  }
  assert.equal(new Limiter(FIVE_PER_HOUR).check("a", { cost: 1, now: NOW }).remaining, 4);
});
