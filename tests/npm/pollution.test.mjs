// A property of a prototype is never read as a field: another library or an attacker may have put it there.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";

import { load, project } from "./installed.mjs";

const folder = project();
const { Limiter, Reporter } = await load();
const { toml } = await load("tidegate/toml");
const { rateLimit } = await load("tidegate/fetch");
const { MemoryStore } = await import(pathToFileURL(join(folder, "node_modules/tidegate/middleware/store.js")));

const NOW = 1_700_000_000_000_000;
const FIVE_PER_HOUR = { limits: [{ algorithm: "fixed_window", limit: 5, period: "1h" }] };
const JOBS = { limits: [{ algorithm: "concurrency", capacity: 5, time_to_live: "1h" }] };

/** Calls while each of these is a property of the prototype: a value, or a descriptor. */
function polluted(prototype, properties, call) {
  const defined = Object.entries(properties).map(([name, value]) => [name, {
    __proto__: null, configurable: true, enumerable: true,
    ...(value?.descriptor ?? { value, writable: true }),
  }]);
  for (const [name, descriptor] of defined) Object.defineProperty(prototype, name, descriptor);
  try {
    return call();
  } finally {
    for (const name of Object.keys(properties)) delete prototype[name];
  }
}

/** A setter that drops assigned values, and a getter that returns another value. */
const swallows = (said) => ({ descriptor: { get: () => said, set() {} } });

const count = (times, call) => Array.from({ length: times }, call).filter(({ allowed }) => allowed).length;

test("an inherited cost is not read", () => {
  const limiter = new Limiter(FIVE_PER_HOUR);
  const passed = polluted(Object.prototype, { cost: 0 }, () => count(50, () => limiter.decide("a", { now: NOW })));
  assert.equal(passed, 5);
});

test("inherited fields of an operation are not read", () => {
  const limiter = new Limiter({ limits: [...FIVE_PER_HOUR.limits, ...JOBS.limits] });
  const inherited = {
    cost: 0, class: "none", lease: "inherited", signalPpm: -1, draw: -1, count: 0, grantedAtUs: 1, admitted: 5, suppressed: 0,
  };
  polluted(Object.prototype, inherited, () => {
    const { lease, remaining } = limiter.acquire("a", { now: NOW });
    assert.equal(remaining, 4);
    assert.notEqual(lease, "inherited");
    assert.equal(limiter.renew("a", lease, { now: NOW }).live, true);
    assert.throws(() => limiter.report("a", { now: NOW }), { code: "INVALID_REQUEST", message: /^`admitted`: expected/ });
    assert.equal(limiter.peek("a", { now: NOW }).remaining, 4);
  });
});

test("inherited options are not read", () => {
  const inherited = { policy: "other", maxBytes: 1, limit: "1000/s", localCap: false };
  polluted(Object.prototype, inherited, () => {
    assert.equal(new Limiter(FIVE_PER_HOUR).check("a", { cost: 1, now: NOW }).remaining, 4);
    assert.throws(() => new Reporter({}), { code: "INVALID_OPTION", message: /^`options\.limit`: expected/ });
    const reporter = new Reporter({ limit: "1/s" });
    assert.equal(reporter.decide(6, NOW).admitted, true);
    assert.equal(reporter.decide(1, NOW).reason, "capped");
  });
});

test("inherited rules for fields are not read", () => {
  const limiter = new Limiter(FIVE_PER_HOUR);
  const inherited = { required: true, least: 3, most: 1, type: "object", code: "NONE", name: "x", wire: "y" };
  polluted(Object.prototype, inherited, () => {
    assert.equal(limiter.decide("a", { cost: 2, now: NOW }).remaining, 3);
    assert.throws(() => limiter.decide("a", { cost: 0.5, now: NOW }), { code: "INVALID_COST" });
  });
});

test("an inherited toJSON changes no policy and no operation", () => {
  const free = () => ({ limits: [{ algorithm: "fixed_window", limit: 5_000, period: "1h" }], check: { cost: 0 } });
  for (const prototype of [Object.prototype, Array.prototype, String.prototype, Number.prototype]) {
    polluted(prototype, { toJSON: free }, () => {
      const limiter = new Limiter(FIVE_PER_HOUR);
      assert.equal(limiter.decide("a", { cost: 2, now: NOW }).remaining, 3);
      assert.equal(new Reporter({ limit: "1/s" }).decide(6, NOW).admitted, true);
    });
  }
});

test("a hole in an array does not get a value from the prototype", () => {
  polluted(Array.prototype, { 0: FIVE_PER_HOUR.limits[0] }, () => {
    assert.throws(() => new Limiter({ limits: new Array(1) }), { code: "INVALID_POLICY" });
  });
});

test("setters on Object.prototype change no question and no answer", () => {
  const names = [
    "allowed", "wouldAllow", "denied", "limit", "remaining", "retryAfterUs", "resetAfterUs", "atUs", "live", "lease",
    "factor", "wouldFactor", "budget", "limits", "cost", "class", "check", "renew", "grantedAtUs", "name", "wire",
    "at_us", "would_allow", "would_factor", "granted_at_us", "retry_after_us", "reset_after_us", "names", "list",
    "code", "line", "column", "path", "0", "get", "set", "value", "admitted", "reason",
  ];
  const setters = Object.fromEntries(names.map((name) => [name, swallows("inherited")]));
  const ask = () => {
    const limiter = new Limiter({
      limits: [...FIVE_PER_HOUR.limits, ...JOBS.limits, { algorithm: "budget", most: 2, time: "1s" }], shadow: true,
    });
    const own = (value) => Object.entries(value);
    const answer = limiter.acquire("a", { cost: 2, lease: "one", now: NOW });
    const answers = [
      answer, answer.limits, limiter.renew("a", "one", { now: NOW }), limiter.budget("a", "one", { wants: 1, now: NOW }),
      limiter.peek("a", { now: NOW }), limiter.refund("a", 1, { now: NOW }),
    ];
    const errors = [
      () => limiter.check("a", { cost: 0.5, now: NOW }), () => limiter.check("a", { cost: "1", now: NOW }), () => limiter.check("", { cost: 1, now: NOW }),
      () => limiter.check("a", { cost: 1, now: NOW }), () => new Limiter({ limits: [{ algorithm: "none" }] }), () => new Limiter("limits = ["),
    ].map((call) => {
      try {
        return call();
      } catch (error) {
        const { code, line, column, path } = error;
        return [Object.hasOwn(error, "code"), code, line, column, path, error.message];
      }
    });
    return [answers.map(own), answer.limits.map(own), errors];
  };
  const expected = ask();
  const found = polluted(Object.prototype, setters, ask);
  // compared afterwards, because the setters would break the comparison; these errors have no lines
  for (const error of found[2]) error.forEach((field, place) => { if (field === "inherited") error[place] = undefined; });
  assert.deepEqual(found, expected);
});

test("inherited fields of what a store or a limiter answers to middleware are not read", async (t) => {
  const inherited = { live: true, degraded: "inherited", lease: { name: "x", renewEveryUs: 1 }, reservation: { id: "x", units: 5 }, refusal: { status: 500, body: "" }, remaining: 7 };
  t.after(() => Object.keys(inherited).forEach((name) => delete Object.prototype[name]));
  const asked = [];
  const noted = (name, answer) => async () => (asked.push(name), answer);
  const store = { check: noted("check", { headers: [] }), renew: noted("renew", true), release: noted("release"), commit: noted("commit") };
  const handler = ({ rateLimit }) => (asked.push("handled"), new Response(String(rateLimit.remaining)));
  const onError = (error) => asked.push(error.message);
  const limited = rateLimit(new Limiter({ ...FIVE_PER_HOUR, reservations: {} }), handler, { key: () => "a", actual: 1, store, onError });
  const renewals = new MemoryStore({ renew: async () => ({ allowed: true }), release: async () => ({}) });
  t.mock.timers.enable({ apis: ["setTimeout"] });
  Object.assign(Object.prototype, inherited);
  const response = await limited(new Request("http://x/"));
  assert.deepEqual([response.status, await response.text()], [200, "Infinity"]);
  assert.equal(await renewals.renew("a", "x"), false);
  await renewals.release("a", "x");
  t.mock.timers.tick(1_000); // a lease would be renewed
  await new Promise(setImmediate);
  assert.deepEqual(asked, ["check", "handled"]);
  inherited.headers = Object.prototype.headers = [];
  for (const [nothing, found] of [[undefined, "undefined"], [null, "null"], [{}, "an object"], [{ headers: null }, "an object"]]) {
    store.check = async () => nothing;
    await assert.rejects(limited(new Request("http://x/")), { name: "TypeError", message: `\`store\`: expected an answer with an array of \`headers\`, found ${found}` });
  }
  assert.deepEqual(asked, ["check", "handled"], "an answer without headers lets nobody pass");
});

test("an answer has no inherited fields", () => {
  const limiter = new Limiter(FIVE_PER_HOUR);
  const inherited = {
    live: true, lease: "x", factor: 1, would_factor: 1, would_allow: true, budget: { granted: 1 },
  };
  const answer = polluted(Object.prototype, inherited, () => limiter.decide("a", { now: NOW }));
  assert.deepEqual(Object.keys(answer).sort(),
    ["allowed", "atUs", "limit", "limits", "remaining", "resetAfterUs", "retryAfterUs"]);
});

test("an object of a class is refused, because its fields may be in its prototype", () => {
  class Request {
    get cost() { return 5; }
  }
  const limiter = new Limiter(FIVE_PER_HOUR);
  for (const request of [new Request(), Object.create({ cost: 5 }), new Map([["cost", 5]]), [5], new Date(5)]) {
    assert.throws(() => limiter.decide("a", request), { name: "ArgumentError", code: "INVALID_REQUEST", message: /^`request`: expected a plain object, found/ });
  }
  assert.throws(() => new Limiter(Object.create(FIVE_PER_HOUR)), { code: "INVALID_POLICY" });
  assert.throws(() => new Limiter(FIVE_PER_HOUR, Object.create({ maxBytes: 5 })), { code: "INVALID_OPTION" });
  assert.equal(limiter.size, 0);
  assert.equal(limiter.decide("a", Object.assign(Object.create(null), { cost: 5, now: NOW })).remaining, 0);
});

test("an object of a class is refused at any place of a policy, because a limit could be lost with it", () => {
  class Limit {
    algorithm = "fixed_window";
    period = "1h";
    get limit() { return 1; }
  }
  const { limits: [limit] } = FIVE_PER_HOUR;
  const made = (change) => () => new Limiter({ ...FIVE_PER_HOUR, ...change });
  const message = (path) => ({
    name: "PolicyError", code: "INVALID_POLICY", path,
    message: `${path}: expected a plain object, found an object with a prototype of its own`,
  });
  for (const overrides of [new Map([["a", { limit: 1 }]]), Object.create({ a: { limit: 1 } }), new Set(["a"])]) {
    assert.throws(made({ overrides }), message("overrides"));
  }
  assert.throws(made({ overrides: { a: new Limit() } }), message("overrides.a"));
  assert.throws(made({ limits: [new Limit()] }), message("limits[0]"));
  assert.throws(made({ limits: [limit, Object.assign(new Date(), limit)] }), message("limits[1]"));
  const limiter = new Limiter(FIVE_PER_HOUR);
  for (const found of [new Limit(), Object.create(limit)]) {
    assert.throws(() => limiter.check("a", { limits: [found] }), { code: "INVALID_LIMITS", message: /^`limits\[0\]`: expected a plain object/ });
  }
  assert.equal(new Limiter({ limits: [Object.assign(Object.create(null), limit)] }).check("a").remaining, 4);
});

test("a lone surrogate is refused at any place of a text", () => {
  const overrides = (key) => `limits = [{ algorithm = 'fixed_window', limit = 5, period = '1h' }]\ndeny = ['é🦀${key}']`;
  for (const [lone, kept] of [["\ud800", "\ufffd"], ["\udc00", "a"], ["\ud800\ud800", "\ud83e\udd80"]]) {
    assert.throws(() => new Limiter(toml(overrides(lone))), {
      name: "PolicyError", code: "INVALID_POLICY", line: 2, column: 12, path: "",
      message: "line 2, column 12: expected well-formed Unicode, found a lone surrogate",
    });
    assert.equal(new Limiter(toml(overrides(kept))).check(`é🦀${kept}`, { now: NOW }).allowed, false);
    for (const [policy, path] of [
      [{ ...FIVE_PER_HOUR, deny: ["a", lone] }, "deny[1]"],
      [{ ...FIVE_PER_HOUR, overrides: { [lone]: { limit: 5 } } }, "overrides"],
      [{ policies: { api: { limits: [{ ...FIVE_PER_HOUR.limits[0], name: lone }] } } }, "policies.api.limits[0].name"],
    ]) {
      assert.throws(() => new Limiter(policy), {
        name: "PolicyError", code: "INVALID_POLICY", line: 0, column: 0, path,
        message: `${path}: expected well-formed Unicode, found a lone surrogate`,
      });
    }
    const option = { name: "ArgumentError", code: "INVALID_OPTION", message: /expected well-formed Unicode, found a lone surrogate$/ };
    assert.throws(() => new Limiter({ policies: { "\ufffd": FIVE_PER_HOUR } }, { policy: lone }), option);
    assert.throws(() => new Reporter({ limit: lone }), option);
  }
});
