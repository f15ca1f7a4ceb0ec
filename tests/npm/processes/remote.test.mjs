// The limiter that asks a server answers as the limiter in memory does, in front of a real host.
import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import { after, test } from "node:test";

import { startHost } from "../host.mjs";
import { load, project } from "../installed.mjs";

const folder = project();
const { Limiter } = await load();
const { toml } = await load("tidegate/toml");
const { RemoteLimiter, ...errors } = await load("tidegate/remote");

/** Windows of a year and more: no test sees one end, so all numbers but times are those of a limiter in memory. */
const POLICIES = `
[policies.windows]
limits = [
  { algorithm = "fixed_window", name = "long", limit = 40, period = "36500d" },
  { algorithm = "fixed_window", name = "longer", limit = 60, period = "36500d", warn_at = "50%" },
]
deny = ["acme/denied"]
allow = ["acme/free"]

[policies.shared]
limits = [
  { algorithm = "fixed_window", name = "all", limit = 90, period = "36500d", depth = 1 },
  { algorithm = "fixed_window", name = "own", limit = 30, period = "36500d" },
]
overrides = { "acme/b" = { limits = [{ algorithm = "fixed_window", limit = 15, period = "36500d" }] } }

[policies.leases]
limits = [
  { algorithm = "fixed_window", name = "units", limit = 90, period = "36500d" },
  { algorithm = "concurrency", name = "places", capacity = 2, time_to_live = "300d" },
]

[policies.shadow]
limits = [{ algorithm = "fixed_window", limit = 20, period = "36500d" }]
shadow = true

[policies.planned]
limits = [
  { algorithm = "fixed_window", name = "now", limit = 40, period = "36500d" },
  { algorithm = "fixed_window", name = "next", limit = 10, period = "36500d", shadow = true },
]

[policies.tokens]
limits = [{ algorithm = "fixed_window", limit = 90, period = "36500d" }]
reservations = { time_to_live = "300d" }

[policies.once]
limits = [{ algorithm = "fixed_window", limit = 90, period = "36500d" }]
idempotency = "1d"
reservations = {}

[policies.account]
limits = [{ algorithm = "suppression", rate = "100/s" }]

[policies.lent]
limits = [
  { algorithm = "fixed_window", limit = 90, period = "36500d" },
  { algorithm = "budget", most = 10, time = "300d" },
]

[policies.bucket]
limits = [{ algorithm = "token_bucket", capacity = 100, rate = "100/h" }]
idempotency = "1d"

[policies.log]
limits = [{ algorithm = "sliding_log", rates = ["90/36500d"] }]

[policies.open]
limits = [{ algorithm = "fixed_window", limit = 1000, period = "36500d" }]
`;

const host = await startHost(POLICIES);
after(() => host.stop());

const of = (policy, options) => new RemoteLimiter({ url: host.url, policy, token: "admin", deadline: "30s", ...options });

/** A `fetch` that notes what is sent. */
function noting() {
  const sent = [];
  const noted = (url, init) => {
    sent.push({ ...init, path: url.slice(host.url.length) });
    return fetch(url, init);
  };
  return { sent, fetch: noted };
}

test("the entry exports the limiter and the errors, and has no WebAssembly", () => {
  assert.deepEqual(Object.keys(errors).sort(), ["ArgumentError", "FullError", "LimiterError", "PolicyError", "default"].sort());
  assert.equal(errors.default, RemoteLimiter);
  for (const file of ["remote.js", "remote.cjs"]) {
    assert.doesNotMatch(readFileSync(join(folder, "node_modules/tidegate/dist", file), "utf8"), /WebAssembly\./);
  }
});

/** Numbers that seem random and are the same in each run. */
function random(seed) {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** An answer without the times, which the server counts from its own clock. */
function timeless({ atUs, retryAfterUs, resetAfterUs, expiresAtUs, limits, ...answer }) {
  if (answer.text !== undefined) answer.text = answer.text.replace(/(?<=(it passes in|is blocked for another) ).*\.$/, "…");
  for (const time of [atUs, expiresAtUs].filter((time) => time !== undefined)) assert.ok(Number.isSafeInteger(time), time);
  const never = retryAfterUs === Number.MAX_SAFE_INTEGER;
  return limits === undefined ? { ...answer, never } : { ...answer, never, limits: limits.map(timeless) };
}

/** What a call comes to: an answer without methods and times, or an error. */
async function outcome(call) {
  try {
    return timeless(await call());
  } catch (error) {
    if (error.code === undefined) throw error;
    return { name: error.name, code: error.code };
  }
}

const KEYS = ["acme/a", "acme/b", "acme/denied", "acme/free", "other", "ip:2001:db8::1", "ip:x", "", "é/ü %2F?&#\ufffd", "..", "a/../b"];

for (const policy of ["windows", "shared", "leases", "shadow", "planned", "tokens"]) {
  test(`${policy}: 500 calls are answered as in memory`, async () => {
    const [expected, found] = [new Limiter(toml(POLICIES), { policy }), of(policy)];
    const pick = random(policy.length);
    const codes = new Set();
    for (let step = 0; step < 500; step++) {
      const [key, cost, lease, span] = [KEYS[pick(KEYS.length)], pick(7), `lease-${pick(4)}`, [0, "1000000s"][pick(2)]];
      const call = [
        (limiter) => limiter.check(key, { cost }),
        (limiter) => limiter.decide(key, { cost, lease }),
        (limiter) => limiter.peek(key, { cost }),
        (limiter) => limiter.explain(key, { cost, lease: cost === 3 ? lease : undefined }),
        (limiter) => limiter.acquire(key, { cost, lease }),
        (limiter) => limiter.renew(key, lease),
        (limiter) => limiter.release(key, lease),
        (limiter) => limiter.reserve(key, { cost, id: lease, timeToLive: "200d" }),
        (limiter) => limiter.commit(key, lease, cost),
        (limiter) => limiter.refund(key, cost),
        (limiter) => limiter.block(key, span),
        (limiter) => limiter.reset(key),
      ][pick(12)];
      const isOfPath = key === ".." && /peek|block|reset/.test(call);
      // a check under leases has charged the other limits before the client knows of the leases
      if (policy === "leases" && /\.check/.test(call)) continue;
      const wanted = isOfPath ? { name: "ArgumentError", code: "INVALID_KEY" } : await outcome(() => call(expected));
      assert.deepEqual(await outcome(() => call(found)), wanted, `step ${step}: ${call} on ${key}, ${cost}, ${lease}`);
      codes.add(wanted.code ?? wanted.allowed);
    }
    assert.ok(codes.has(true) && codes.size > 2, [...codes].join());
    await found.close();
  });
}

test("what throws in memory rejects here, with the same code", async () => {
  const [expected, found] = [new Limiter(toml(POLICIES), { policy: "windows" }), of("windows")];
  for (const call of [
    (limiter) => limiter.check(7), (limiter) => limiter.check("x".repeat(513)), (limiter) => limiter.check("é".repeat(300)),
    (limiter) => limiter.check("\ud800"), (limiter) => limiter.check("a", { cost: -1 }), (limiter) => limiter.check("a", { cost: 41 }),
    (limiter) => limiter.check("a", { cost: 0.5 }), (limiter) => limiter.check("a", { price: 1 }), (limiter) => limiter.acquire("a"),
    (limiter) => limiter.renew("a", "b"), (limiter) => limiter.release("a", 7), (limiter) => limiter.release("a", ""), (limiter) => limiter.commit("a", "b", 1),
    (limiter) => limiter.reserve("a"), (limiter) => limiter.refund("a", 0), (limiter) => limiter.block("a", "soon"), (limiter) => limiter.block("a", -1),
    (limiter) => limiter.decide("a", { class: "none" }), (limiter) => limiter.decide("a", null), (limiter) => limiter.peek("a", { cost: 41 }), (limiter) => limiter.explain("a", { cost: 41 }), (limiter) => limiter.explain("a", { class: "none" }),
    (limiter) => limiter.budget("a", "b", { wants: 1 }), (limiter) => limiter.report("a", { admitted: 1, suppressed: 0 }), (limiter) => limiter.budget("a", "b"),
  ]) {
    const wanted = await outcome(() => call(expected));
    assert.equal(typeof wanted.code, "string", `${call}`);
    assert.deepEqual(await outcome(() => call(found)), wanted, `${call}`);
  }
  for (const [options, expected] of [
    [{ now: 1 }, "`options`: expected `cost`, `signal` or `idempotencyKey`, found `now`"],
    [{ limits: [] }, "`limits`: expected no limits of a call, which need a `Limiter` in memory"],
  ]) {
    await assert.rejects(found.check("a", options), { code: "INVALID_REQUEST", message: expected });
  }
  assert.throws(() => found.resetAll(), { code: "INVALID_REQUEST", message: /^`resetAll`: needs a `Limiter`/ });
  await assert.rejects(of("none").check("a"), { name: "PolicyError", code: "UNKNOWN_POLICY", message: /^`policy`: expected one of .*; found "none"$/ });
  for (const token of [undefined, "wrong"]) {
    await assert.rejects(of("open", { token }).check("a"), { name: "LimiterError", code: "UNAUTHORIZED" });
  }
  await assert.rejects(of("open", { token: "secret" }).reset("a"), { code: "UNAUTHORIZED" });
});

test("a check of a key that holds leases fails, and gives the lease back", async () => {
  const limiter = of("leases");
  await assert.rejects(limiter.check("a", { cost: 1 }), { code: "NEEDS_LEASE" });
  assert.equal((await limiter.peek("a")).limits.find(({ name }) => name === "places").remaining, 2);
});

test("the constructor refuses what is no option, and shows no secret", () => {
  const url = "http://127.0.0.1:1";
  for (const options of [
    undefined, null, {}, { url }, { policy: "a" }, { url, policy: 7 }, { url: "ftp://a", policy: "a" }, { url: "secret", policy: "a" },
    { url: "http://user:secret@a", policy: "a" }, { url: "http://a/?token=secret", policy: "a" }, { url: "http://a/#secret", policy: "a" },
    { url, policy: "a", token: "sec\nret" }, { url, policy: "a", token: "secret é" }, { url, policy: "a", token: 7 }, { url, policy: "a", deadline: 250 },
    { url, policy: "a", deadline: "2h" }, { url, policy: "a", deadline: "999us" }, { url, policy: "a", deadline: "soon" }, { url, policy: "a", deadlineMs: 250 }, { url, policy: "a", onError: "local" }, { url, policy: "a", fetch: 7 }, { url, policy: "a", timeout: 1 },
  ]) {
    assert.throws(() => new RemoteLimiter(options), (error) => {
      assert.equal(error.name, "ArgumentError");
      assert.doesNotMatch(error.message, /secret|sec\nret/);
      return true;
    });
  }
});

test("a span is read by the server, as WebAssembly reads it", async () => {
  const { sent, fetch } = noting();
  const [memory, remote] = [new Limiter(toml(POLICIES), { policy: "tokens" }), of("tokens", { fetch })];
  for (const span of ["1m30s", "4 s", "1.5s", "7us", 90_000_000, 1, 0, "0s", "", "90", "soon", "1e3s", "1s ", "\ufffd", "\ud800", "285 years", 1.5, -1, Number.MAX_SAFE_INTEGER + 1, null, "x".repeat(2_000)]) {
    for (const call of [(limiter) => limiter.block("spans", span), (limiter) => limiter.reserve("spans", { cost: 1, id: `spans/${String(span).slice(0, 9).toWellFormed()}`, timeToLive: span })]) {
      assert.deepEqual(await outcome(() => call(remote)), await outcome(() => call(memory)), `${call}: ${span}`);
      await Promise.all([memory.reset("spans"), remote.reset("spans")]);
    }
  }
  await remote.block("spans", "1m30s");
  assert.deepEqual(JSON.parse(sent.at(-1).body), { for: "1m30s" });
  const { retryAfterUs } = await remote.check("spans");
  assert.ok(retryAfterUs > 60_000_000 && retryAfterUs <= 90_000_000, retryAfterUs);
});

test("checks that begin together share a call, and one that is wrong fails alone", async () => {
  const { sent, fetch } = noting();
  const limiter = of("open", { fetch });
  const keys = ["first", "second", "ip:x", "third", "fourth"];
  const answers = await Promise.allSettled([...keys.map((key) => limiter.check(key)), limiter.decide("fifth", { cost: 1001 }), limiter.decide("first")]);
  const codes = answers.map(({ value, reason }) => reason?.code ?? value.remaining);
  assert.deepEqual(codes, [999, 999, "INVALID_KEY", 999, 999, "COST_EXCEEDS_CAPACITY", 998]);
  assert.deepEqual([JSON.parse(sent[0].body).checks.length, sent[0].path], [7, "/v1/check"]);
  assert.ok(sent.length <= 12, `${sent.length} calls`);
  await limiter.check("alone");
  assert.deepEqual(JSON.parse(sent.at(-1).body), { policy: "open", key: "alone" });
});

test("a batch keeps to the bounds of the API", async () => {
  const { sent, fetch } = noting();
  const limiter = of("open", { fetch });
  assert.equal((await Promise.all(Array.from({ length: 1_000 }, () => limiter.check("many")))).at(-1).remaining, 0);
  assert.equal(sent.length, 1);
  const refused = await Promise.all(Array.from({ length: 2_500 }, () => limiter.check("many")));
  assert.ok(refused.every(({ allowed, degraded }) => !allowed && degraded === undefined));
  assert.deepEqual(sent.slice(1).map(({ body }) => JSON.parse(body).checks.length), [1_000, 1_000, 500]);
  const long = await Promise.all(Array.from({ length: 900 }, (_, place) => limiter.check(`${"\u0001".repeat(500)}${place}`)));
  assert.ok(long.every(({ remaining }) => remaining === 999));
  assert.ok(sent.length > 5);
});

test("a call with an idempotency key is taken once, however often it is sent", async () => {
  const lost = { sent: 0 };
  const losing = async (url, init) => {
    const response = await fetch(url, init);
    if (lost.sent++ % 2 === 0) throw new TypeError("the answer was lost");
    return response;
  };
  const limiter = of("once", { fetch: losing });
  const once = (key) => ({ cost: 10, idempotencyKey: key });
  assert.equal((await limiter.check("a", once("8e03, 978e"))).remaining, 80);
  assert.equal((await limiter.decide("a", once("~!#"))).remaining, 70);
  assert.equal((await limiter.reserve("a", { cost: 10 })).remaining, 60);
  assert.equal((await limiter.reserve("a", once("third"))).remaining, 50);
  assert.equal((await limiter.reserve("a", { cost: 10, id: "mine" })).remaining, 40);
  assert.deepEqual([(await limiter.commit("a", "mine", 4)).charged, (await limiter.peek("a")).remaining], [4, 46]);
  assert.equal((await limiter.refund("a", 6, { idempotencyKey: "4" })).remaining, 52);
  assert.equal(lost.sent, 16);
  const { allowed, degraded } = await limiter.check("a", { cost: 10 });
  assert.deepEqual([allowed, degraded, lost.sent], [false, "server: the answer was lost", 17], "a check without one is never repeated");
  lost.sent++;
  await assert.rejects(limiter.reset("b"), { code: "UNAVAILABLE" });
  assert.equal(lost.sent, 19, "a second reset would forget what was taken after the first");
  lost.sent++;
  assert.equal((await limiter.check("a", once("8e03, 978e"))).remaining, 80, "the first answer");
  lost.sent++;
  await assert.rejects(limiter.check("a", { cost: 11, idempotencyKey: "~!#" }), { code: "INVALID_REQUEST" });
  for (const idempotencyKey of ["", 'a"', "a\\", "é", "\n", "x".repeat(256), 7]) {
    await assert.rejects(limiter.check("a", { idempotencyKey }), { code: "INVALID_REQUEST" });
  }
});

test("a grant gives units and its lease back", async () => {
  const limiter = of("leases");
  const grant = await limiter.decide("grant", { cost: 50 });
  const unitsOf = ({ limits }) => limits.find(({ name }) => name === "units").remaining;
  assert.equal(unitsOf(await grant.refund(20)), 60);
  await assert.rejects(grant.refund(40), { code: "INVALID_REQUEST" });
  const [all, none] = await Promise.all([grant.refund(), grant.refund()]);
  assert.deepEqual([unitsOf(all), none], [90, undefined], "once");
  assert.equal((await grant.renew()).live, true);
  assert.deepEqual([await grant.release(), await grant.release()], [true, false]);
  const held = await limiter.acquire("grant");
  assert.equal(held.limits.find(({ name }) => name === "places").remaining, 1);
  await assert.rejects(held.refund(), { code: "INVALID_REQUEST", message: "`units`: expected a request that named its `cost`, found one without" });
  await held[Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")](); // as `await using` does
  assert.equal((await limiter.peek("grant")).limits.find(({ name }) => name === "places").remaining, 2);
  const refused = await of("windows").decide("grant", { cost: 40 }).then(() => of("windows").decide("grant", { cost: 40 }));
  assert.deepEqual([refused.allowed, await refused.refund(), await refused.release()], [false, undefined, false]);
});

test("a grant keeps what a call that is refused did not give back", async () => {
  const grant = await of("leases").decide("kept", { cost: 50 });
  await assert.rejects(grant.release({ nope: 1 }), { code: "INVALID_REQUEST" });
  assert.equal(await grant.release(), true);
  await assert.rejects(grant.refund(20, { idempotencyKey: "of a policy without `idempotency`" }), { code: "INVALID_REQUEST" });
  assert.equal((await grant.refund()).limits.find(({ name }) => name === "units").remaining, 90);
});

test("a grant gets back its own units alone, and once if its repeat is known", async () => {
  const { sent, fetch } = noting();
  const [logged, bucket] = [of("log"), of("bucket", { fetch })];
  const [first, second] = [await logged.decide("log", { cost: 20 }), await logged.decide("log", { cost: 30 })];
  assert.ok(second.atUs > first.atUs, "which a log keeps apart");
  assert.deepEqual([await first.refund(15), await second.refund(), await first.refund()].map(({ remaining }) => remaining), [55, 85, 90]);
  const grant = await bucket.decide("bucket", { cost: 50 });
  const once = { idempotencyKey: "8e03978e" };
  await grant.refund(10, once);
  assert.deepEqual([sent.at(-1).path, JSON.parse(sent.at(-1).body)], ["/v1/refund", { policy: "bucket", key: "bucket", units: 10, granted_at_us: grant.atUs, granted: 50 }]);
  assert.equal(sent.at(-1).headers["idempotency-key"], '"8e03978e"');
  await grant.refund();
  assert.deepEqual(JSON.parse(sent.at(-1).body), { policy: "bucket", key: "bucket", units: 40, granted_at_us: grant.atUs, granted: 40 });
});

test("what passes in shadow took nothing, and what passes a limit in shadow took its cost", async () => {
  const [shadow, planned] = [of("shadow"), of("planned")];
  const refund = async (limiter, cost) => (await (await limiter.decide("soft", { cost })).refund())?.remaining;
  assert.deepEqual([await refund(shadow, 20), await refund(planned, 11)], [20, 40]);
  await shadow.check("soft", { cost: 20 });
  assert.deepEqual([await refund(shadow, 20), (await shadow.peek("soft")).remaining], [undefined, 0]);
});

test("a suppression factor and a budget", async () => {
  const now = Date.now() * 1000;
  const { factor } = await of("account").report("account", { admitted: 60_000, suppressed: 0, offeredAtUs: now - 6_000_000 });
  assert.ok(factor > 0 && factor < 1 && Number.isInteger(factor * 2 ** 32), factor);
  const { budget, remaining } = await of("lent").budget("node", "holder", { wants: 10 });
  assert.deepEqual([budget.granted > 0, budget.expiresAtUs - budget.grantedAtUs, remaining], [true, 300 * 86_400_000_000, 90 - budget.granted]);
  const { live } = await of("lent").budget("node", "holder", { wants: 0, grantedAtUs: budget.grantedAtUs, left: budget.granted });
  assert.equal(live, true);
});

test("a limiter that is closed answers what it was asked before, and nothing after", async () => {
  const limiter = of("open");
  const asked = [limiter.check("closing"), limiter.peek("closing"), limiter.check("closing")];
  assert.equal(limiter.waiting, 3);
  const closed = limiter.close();
  await assert.rejects(limiter.check("closing"), { code: "FREED", message: "the limiter has been closed" });
  await closed;
  assert.equal(limiter.waiting, 0);
  assert.deepEqual((await Promise.all(asked)).map(({ allowed }) => allowed), [true, true, true]);
  await limiter.close();
});

test("calls one after another keep their connection", async (t) => {
  let connections = 0;
  const proxy = createServer((socket) => {
    connections++;
    const target = connect(Number(host.address.split(":")[1]), "127.0.0.1");
    for (const each of [socket, target]) each.on("error", () => {});
    socket.pipe(target).pipe(socket);
  }).listen(0, "127.0.0.1");
  await once(proxy, "listening");
  t.after(() => proxy.close());
  const limiter = of("open", { url: `http://127.0.0.1:${proxy.address().port}` });
  for (let call = 0; call < 20; call++) assert.equal((await limiter.check("kept")).remaining, 999 - call);
  assert.ok(connections <= 3, `${connections} connections`); // a client may open a second one while the first one ends an answer
});

test("a URL may have a path, and slashes at its end", async () => {
  const urls = [];
  const noted = (url) => (urls.push(url), Promise.reject(new Error("noted")));
  for (const url of ["https://a.example/tide/gate//", "http://[::1]:8080", "HTTP://A.example"]) await of("open", { url, fetch: noted }).check("a");
  assert.deepEqual(urls, ["https://a.example/tide/gate/v1/check", "http://[::1]:8080/v1/check", "http://a.example/v1/check"]);
});
