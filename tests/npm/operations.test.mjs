// All other operations on a key: leases, refunds, reports, reservations; and which limits
// apply to it.
import assert from "node:assert/strict";
import { test } from "node:test";

import { load } from "./installed.mjs";

const { Limiter } = await load();

const NOW = 1_700_000_004_000_000; // a part of 6 s begins
const SECOND = 1_000_000;

const of = (...limits) => new Limiter({ limits });
const bucket = { algorithm: "token_bucket", name: "burst", capacity: 3, rate: "3/s" };
const minute = { algorithm: "fixed_window", name: "minute", limit: 5, period: "1m" };
const places = { algorithm: "concurrency", capacity: 2, time_to_live: "10s" };

test("decide returns the answer of each limit, and changes the same states as check", () => {
  const [limiter, checked] = [of(bucket, minute), of(bucket, minute)];
  const answer = limiter.decide("a", { cost: 3, now: NOW });
  const burst = { name: "burst", allowed: true, limit: 3, remaining: 0, retryAfterUs: 0, resetAfterUs: SECOND };
  const resetAfterUs = 36 * SECOND; // the minute began 24 s ago
  assert.deepEqual({ ...answer }, {
    allowed: true, limit: 3, remaining: 0, retryAfterUs: 0, resetAfterUs, atUs: NOW,
    limits: [burst, { name: "minute", allowed: true, limit: 5, remaining: 2, retryAfterUs: 0, resetAfterUs }],
  });
  const refused = limiter.decide("a", { cost: 3, now: NOW + SECOND });
  assert.deepEqual(refused.limits.map(({ name, allowed }) => [name, allowed]), [["burst", true], ["minute", false]]);
  assert.equal(refused.retryAfterUs, 35 * SECOND);

  checked.check("a", { cost: 3, now: NOW });
  const { atUs, limits, ...same } = refused;
  assert.deepEqual(checked.check("a", { cost: 3, now: NOW + SECOND }), same);
  assert.equal(atUs, NOW + SECOND);
  assert.equal(limiter.decide("a", { now: NOW + SECOND }).limits[1].remaining, 1, "the policy's cost is 1");
  assert.equal(limiter.decide("a", { cost: 0, now: NOW }).atUs, NOW + SECOND, "the time of a decision never goes back");
});

test("check and decide find the same rule for a key", () => {
  const policy = {
    limits: [{ ...minute, limit: 5 }],
    overrides: { "user:42": { limit: 7 }, "team:*": { limits: [{ ...minute, limit: 9 }] } },
    deny: ["ip:192.0.2.0/24", "bad"],
    allow: ["ip:198.51.100.7"],
  };
  const [limiter, decided] = [new Limiter(policy), new Limiter(policy)];
  for (const [key, allowed, limit] of [
    ["user:1", true, 5], ["user:42", true, 7], ["team:x", true, 9], ["bad", false, 0],
    ["ip:192.0.2.200", false, 0], ["ip:198.51.100.7", true, Number.MAX_SAFE_INTEGER],
  ]) {
    const { limit: found, allowed: passes, ...others } = limiter.check(key, { cost: 1, now: NOW });
    assert.deepEqual([passes, found], [allowed, limit], key);
    const { atUs, limits, ...answer } = decided.decide(key, { cost: 1, now: NOW });
    assert.deepEqual({ allowed, limit, ...others }, answer, key);
    assert.equal(limits.length, Number.MAX_SAFE_INTEGER > limit && limit > 0 ? 1 : 0);
    assert.equal(limiter.peek(key, { now: NOW }).allowed, allowed);
  }
  assert.equal(limiter.size, 3, "listed keys are not counted");
  limiter.sweep({ now: NOW + 60 * SECOND });
  assert.equal(limiter.size, 0);
});

test("an IPv6 address is counted by its network", () => {
  const limiter = of(bucket);
  limiter.check("ip:2001:db8::1", { cost: 3, now: NOW });
  assert.equal(limiter.check("ip:2001:db8::ffff", { cost: 1, now: NOW }).allowed, false);
  assert.equal(limiter.check("ip:2001:db8:0:1::1", { cost: 1, now: NOW }).allowed, true);
  const narrow = new Limiter({ limits: [bucket], ipv6_prefix: 128 });
  narrow.check("ip:2001:db8::1", { cost: 3, now: NOW });
  assert.equal(narrow.check("ip:2001:db8::2", { cost: 1, now: NOW }).allowed, true);
});

test("a denied key is told apart from a refusal", () => {
  const limiter = new Limiter({ limits: [{ ...bucket, capacity: 1 }], deny: ["bad"], allow: ["good"] });
  const never = Number.MAX_SAFE_INTEGER;
  const denied = { allowed: false, limit: 0, remaining: 0, retryAfterUs: never, resetAfterUs: never, denied: true };
  const listed = { ...denied, atUs: NOW, limits: [] };
  assert.deepEqual(limiter.check("bad", { now: NOW }), denied);
  assert.deepEqual(limiter.check("bad", { cost: 0, now: NOW }), denied);
  assert.deepEqual({ ...limiter.decide("bad", { now: NOW }) }, listed);
  assert.deepEqual(limiter.peek("bad", { now: NOW }), listed);
  assert.deepEqual(limiter.refund("bad", 1, { now: NOW }), listed);
  assert.equal(limiter.explain("bad", { now: NOW }).denied, true);
  assert.equal(limiter.check("bad", { now: NOW, limits: [bucket] }).denied, true, "under limits of the call, too");
  limiter.block("blocked", `${never}us`, { now: NOW });
  limiter.check("a", { now: NOW });
  for (const [key, allowed] of [["good", true], ["a", false], ["blocked", false], ["new", true]]) {
    for (const answer of [limiter.peek(key, { now: NOW, cost: 1 }), limiter.check(key, { now: NOW })]) {
      assert.deepEqual([answer.allowed, "denied" in answer], [allowed, false], key);
    }
  }
});

test("in shadow every request passes, and the answer has the decision", () => {
  const policy = { limits: [{ ...bucket, capacity: 1 }], shadow: true, deny: ["bad"] };
  const [limiter, decided] = [new Limiter(policy), new Limiter(policy)];
  const granted = { allowed: true, limit: 1, remaining: 0, retryAfterUs: 0, resetAfterUs: 333_334, wouldAllow: true };
  const refused = { ...granted, retryAfterUs: 333_334, wouldAllow: false };
  for (const expected of [granted, refused]) {
    assert.deepEqual(limiter.check("a", { cost: 1, now: NOW }), expected);
    const { atUs, limits, ...answer } = decided.decide("a", { cost: 1, now: NOW });
    assert.deepEqual(answer, expected);
    assert.equal(limits[0].allowed, expected.wouldAllow);
  }
  const looked = limiter.peek("a", { now: NOW });
  assert.deepEqual([looked.remaining, looked.wouldAllow], [0, true]);
  const denied = limiter.check("bad", { cost: 1, now: NOW });
  assert.deepEqual([denied.allowed, denied.wouldAllow, denied.denied], [true, false, true]);
  assert.equal("wouldAllow" in of(bucket).check("a", { cost: 1, now: NOW }), false);
  const never = { ...refused, retryAfterUs: Number.MAX_SAFE_INTEGER };
  assert.deepEqual(limiter.check("a", { cost: 2, now: NOW }), never, "a cost that can never be granted");
  const { atUs, limits, ...answer } = decided.decide("a", { cost: 2, now: NOW });
  assert.deepEqual(answer, never);
});

test("a limit in shadow refuses nothing, and a limit warns", () => {
  const planned = { algorithm: "fixed_window", name: "planned", limit: 1, period: "1h", shadow: true };
  const policy = { limits: [{ ...bucket, name: "now", capacity: 4, warn_at: "50%" }, planned] };
  const [limiter, decided] = [new Limiter(policy), new Limiter(policy)];
  for (const [left, wouldAllow] of [[3, true], [2, false], [1, false], [0, false]]) {
    const answer = decided.decide("a", { cost: 1, now: NOW });
    const { atUs, limits, ...decision } = answer;
    assert.deepEqual(limiter.check("a", { cost: 1, now: NOW }), { ...decision });
    assert.deepEqual([answer.allowed, answer.remaining, answer.wouldAllow], [true, left, wouldAllow]);
    assert.deepEqual([answer.warned, limits[0].warned, "warned" in limits[1]], left > 2 ? [undefined, undefined, false] : [true, true, false]);
    assert.deepEqual([limits[1].shadow, limits[1].allowed, "shadow" in limits[0]], [true, wouldAllow, false]);
  }
  for (const answer of [decided.decide("a", { now: NOW }), limiter.check("a", { now: NOW })]) {
    assert.deepEqual([answer.allowed, answer.wouldAllow, answer.warned], [false, false, true]);
  }
  const limits = [{ algorithm: "fixed_window", limit: 9, period: "1h", warn_at: "100%" }];
  const ofCall = new Limiter({ limits: [bucket] });
  assert.equal(ofCall.check("a", { cost: 9, now: NOW, limits }).warned, true);
  assert.equal("warned" in ofCall.check("a", { now: NOW }), false);
  const leases = new Limiter({ limits: [{ ...bucket, warn_at: "1%" }, { algorithm: "concurrency", capacity: 1, time_to_live: "1m", shadow: true }] });
  assert.throws(() => leases.check("a", { now: NOW }), { code: "NEEDS_LEASE" });
  assert.deepEqual([leases.decide("a", { now: NOW }), leases.decide("a", { now: NOW })].map(({ wouldAllow }) => wouldAllow), [true, false]);
});

test("in shadow the factor for reporters is 0", () => {
  const limiter = new Limiter({ limits: [{ algorithm: "suppression", rate: "100/s" }], shadow: true });
  const { factor, wouldFactor } = limiter.report("a", { admitted: 1_000_000, suppressed: 0, now: NOW });
  assert.equal(factor, 0);
  assert.ok(wouldFactor > 0.9, `${wouldFactor}`);
});

test("a lease without a name gets one that nobody can guess", () => {
  const limiter = of({ ...places, capacity: 1_000 });
  const names = Array.from({ length: 1_000 }, () => limiter.acquire("a", { now: NOW }).lease);
  assert.equal(new Set(names).size, 1_000);
  for (const name of names) assert.match(name, /^[0-9a-f]{32}$/);
  assert.equal(limiter.peek("a", { now: NOW }).remaining, 0);
  assert.equal(limiter.release("a", names[7], { now: NOW }).live, true);
  assert.match(limiter.decide("a", { now: NOW }).lease, /^[0-9a-f]{32}$/, "decide acquires too");
});

test("without random numbers a lease gets no name, and a request that may be shed is shed", (t) => {
  const limiter = of(places);
  const suppressed = of({ algorithm: "suppression", rate: "1/s" });
  suppressed.report("a", { admitted: 7, suppressed: 0, now: NOW });
  t.mock.method(globalThis.crypto, "getRandomValues", () => { throw new Error("none"); });
  for (const call of ["acquire", "decide"]) {
    assert.throws(() => limiter[call]("a", { now: NOW }), { name: "LimiterError", code: "NO_RANDOMNESS" });
  }
  assert.equal(limiter.peek("a", { now: NOW }).remaining, 2);
  assert.equal(limiter.acquire("a", { lease: "mine", now: NOW }).allowed, true);
  for (let index = 0; index < 20; index++) assert.equal(suppressed.check("a", { cost: 1, now: NOW }).allowed, false);
});

test("the hash table is seeded once it may have many keys, and keeps those that it has", (t) => {
  const limiter = of(bucket);
  const empty = of(bucket);
  const keys = Array.from({ length: 63 }, (_, index) => `user:${index}`);
  const random = t.mock.method(globalThis.crypto, "getRandomValues", () => { throw new Error("none"); });
  const before = keys.map((key) => limiter.check(key, { cost: 1, now: NOW }).remaining);
  const refused = { name: "LimiterError", code: "NO_RANDOMNESS", message: /many keys: none$/ };
  for (let index = 0; index < 2; index++) assert.throws(() => limiter.check("last", { cost: 1, now: NOW }), refused);
  const dump = limiter.dump();
  assert.throws(() => empty.restore(dump), refused, "a dump may have many keys");
  random.mock.restore();
  const after = keys.map((key) => limiter.check(key, { cost: 1, now: NOW }).remaining);
  assert.deepEqual(after, before.map((remaining) => remaining - 1));
  assert.equal(limiter.size, 63);
});

test("a check acquires no lease, because nobody would know its name", () => {
  const limiter = new Limiter({ limits: [places], overrides: { plain: { limits: [bucket] } } });
  const refused = { name: "LimiterError", code: "NEEDS_LEASE", message: /call `acquire`/ };
  assert.throws(() => limiter.check("a", { cost: 1, now: NOW }), refused);
  assert.throws(() => limiter.check("a"), refused);
  assert.equal(limiter.size, 0);
  assert.equal(limiter.peek("a", { now: NOW }).remaining, 2);
  assert.equal(limiter.check("plain", { cost: 1, now: NOW }).remaining, 2, "no limit on this key holds leases");
});

test("only limits that hold leases take leases, and only suppression takes reports", () => {
  const limiter = of(bucket);
  for (const call of [
    () => limiter.acquire("a", { now: NOW }), () => limiter.renew("a", "l", { now: NOW }), () => limiter.release("a", "l", { now: NOW }),
  ]) {
    assert.throws(call, { name: "ArgumentError", code: "INVALID_REQUEST", message: /expected a policy that limits leases/ });
  }
  const report = () => limiter.report("a", { admitted: 1, suppressed: 0, now: NOW });
  assert.throws(report, { name: "ArgumentError", code: "INVALID_REQUEST", message: /expected a policy with a limit `suppression`/ });
  assert.equal(limiter.peek("a", { now: NOW }).remaining, 3);
});

test("a report returns the exact factor", () => {
  const limiter = of({ algorithm: "suppression", rate: "100/s" });
  const at = NOW + 2 * SECOND;
  assert.equal(limiter.report("a", { admitted: 600, suppressed: 0, now: at }).factor, 0);
  // a report on a part that has left the window counts for nothing
  assert.equal(limiter.report("a", { admitted: 600, suppressed: 0, offeredAtUs: NOW - 24 * SECOND, now: at }).factor, 0);
  assert.equal(limiter.report("a", { admitted: 150, suppressed: 50, offeredAtUs: at, now: at }).factor, 0.75);
  assert.equal(limiter.decide("a", { cost: 0, now: at }).factor, 0.75);
  assert.equal(limiter.decide("a", { draw: 0.75 * 2 ** 32 - 1, now: at }).allowed, false);
  const third = of({ algorithm: "suppression", rate: "1/s" });
  const { factor } = third.report("a", { admitted: 9, suppressed: 0, now: NOW + 6 * SECOND - 1 });
  assert.ok(factor > 0 && factor < 1);
  assert.equal(factor * 2 ** 32, Math.trunc(factor * 2 ** 32));
});

test("each check has its own random draw", () => {
  const limiter = of({ algorithm: "suppression", rate: "100/s" });
  limiter.report("a", { admitted: 1_200, suppressed: 0, now: NOW + 6 * SECOND - 1 });
  const passed = Array.from({ length: 400 }, () => limiter.check("a", { cost: 1, now: NOW + 6 * SECOND - 1 }).allowed);
  const count = passed.filter(Boolean).length;
  assert.ok(count > 50 && count < 350, `${count} of 400 passed, about half should`);
});

test("a budget takes units from the other limits, and unspent units come back", () => {
  const limiter = of({ ...bucket, capacity: 12, rate: "6/s" }, { algorithm: "budget", most: 8, time: "1s", max_holders: 2 });
  const granted = limiter.budget("a", "node", { wants: 10, now: NOW });
  assert.deepEqual(granted.budget, { granted: 8, grantedAtUs: NOW, expiresAtUs: NOW + SECOND });
  assert.deepEqual([granted.lease, granted.remaining], ["node", 4]);
  const { grantedAtUs } = granted.budget;
  const back = limiter.budget("a", "node", { wants: 0, grantedAtUs, left: 5, now: NOW });
  assert.deepEqual([back.budget.granted, back.remaining], [0, 9]);
  assert.equal(limiter.check("a", { cost: 9, now: NOW }).allowed, true);
  assert.throws(() => limiter.budget("a", "node", { wants: 1, left: 5, now: NOW }), { name: "ArgumentError", code: "INVALID_REQUEST" });
  assert.throws(() => of(bucket).budget("a", "node", { wants: 1, now: NOW }), { code: "INVALID_REQUEST", message: /a limit `budget`/ });
});

test("calls side by side reserve their estimates, and leave what they used", () => {
  const tokens = { algorithm: "token_bucket", capacity: 60_000, rate: "60000/m" };
  const limiter = new Limiter({ limits: [tokens], reservations: { most: 3, largest_share: "50%" } });
  const first = limiter.reserve("a", { cost: 20_000, id: "call 1", timeToLive: "2m", now: NOW });
  assert.deepEqual([first.allowed, first.id, first.reserved, first.expiresAtUs], [true, "call 1", 20_000, NOW + 120 * SECOND]);
  assert.equal(first.lease, undefined);
  assert.deepEqual(limiter.reserve("a", { cost: 20_000, id: "call 1", now: NOW }), first, "repeated");
  const second = limiter.reserve("a", { cost: 64_000, now: NOW });
  assert.deepEqual([second.reserved, second.remaining, second.id.length], [30_000, 10_000, 32]);
  const refused = limiter.reserve("a", { cost: 11_000, id: "3", now: NOW });
  assert.deepEqual([refused.allowed, refused.id, refused.reserved, refused.retryAfterUs], [false, "3", undefined, SECOND]);
  for (const actual of [500, 0, 9]) {
    const { id, charged, late, remaining } = limiter.commit("a", "call 1", actual, { now: NOW + 1 });
    assert.deepEqual([id, charged, late, remaining], ["call 1", 500, false, 29_500], "once");
  }
  assert.equal(limiter.commit("a", second.id, 0, { now: NOW + 1 }).remaining, 59_500);
  assert.deepEqual(Object.keys(limiter.commit("a", "?", 7, { now: NOW + 1 })).slice(-3), ["charged", "late", "id"]);
});

test("a listed key reserves nothing, and its commit charges nothing", () => {
  const limiter = new Limiter({ limits: [minute], reservations: {}, allow: ["good"], deny: ["bad"] });
  for (const [key, allowed] of [["good", true], ["bad", false]]) {
    const held = limiter.reserve(key, { cost: 5, id: "one", now: NOW });
    assert.deepEqual([held.allowed, held.reserved, "expiresAtUs" in held, held.id], [allowed, 0, false, "one"]);
    const { charged, late } = limiter.commit(key, "one", 5, { now: NOW });
    assert.deepEqual([charged, late], [0, false]);
  }
});

test("bad reservations are refused", () => {
  const limiter = new Limiter({ limits: [minute], reservations: {} });
  for (const [call, message] of [
    [() => limiter.reserve("a", { cost: 0 }), /`cost`: expected a whole number from 1/],
    [() => limiter.reserve("a", { cost: 1, id: "" }), /`id`: expected 1 to/],
    [() => limiter.reserve("a", { cost: 1, id: 5 }), /`id`: expected a string/],
    [() => limiter.reserve("a", { cost: 1, lease: "x" }), /`lease`/],
    [() => limiter.reserve("a", { timeToLive: "soon" }), /`timeToLive`: expected a span/],
    [() => limiter.reserve("a", { timeToLive: 0 }), /^`timeToLive`: expected a span such as "60s", found 0 \(a number\)$/],
    [() => limiter.commit("a"), /`id`: expected a string/],
    [() => limiter.commit("a", "x"), /`actual`: expected/],
    [() => limiter.commit("a", "x", -1), /`actual`: expected/],
    [() => new Limiter({ limits: [minute] }).reserve("a"), /a policy with `reservations`/],
    [() => new Limiter({ limits: [minute], reservations: { ttl: "1s" } }), /ttl/],
  ]) {
    assert.throws(call, { message });
  }
});

test("a call without a time reads the clock", (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: NOW / 1000 });
  const limiter = of(places, { algorithm: "suppression", rate: "1/s" });
  assert.equal(limiter.acquire("a", { lease: "l" }).atUs, NOW);
  t.mock.timers.tick(1_000);
  for (const answer of [
    limiter.decide("a"), limiter.renew("a", "l"), limiter.release("a", "l"),
    limiter.refund("a", 1), limiter.report("a", { admitted: 0, suppressed: 0 }),
  ]) {
    assert.equal(answer.atUs, NOW + SECOND);
  }
});

test("a peek at a cost tells whether and when a request would pass", () => {
  const limiter = new Limiter({ limits: [bucket] });
  const { capacity } = bucket;
  limiter.check("a", { cost: capacity - 1, now: NOW });
  assert.deepEqual([1, 2].map((cost) => limiter.peek("a", { cost, now: NOW }).allowed), [true, false]);
  assert.ok(limiter.peek("a", { cost: 2, now: NOW }).retryAfterUs > 0);
  assert.equal(limiter.peek("a", { now: NOW }).remaining, 1);
  assert.throws(() => limiter.peek("a", { cost: capacity + 1, now: NOW }), { code: "COST_EXCEEDS_CAPACITY" });
});

test("units come back, a key starts afresh, a key is blocked", () => {
  const limiter = new Limiter({ limits: [bucket] });
  const { capacity } = bucket;
  limiter.check("a", { cost: capacity, now: NOW });
  assert.equal(limiter.refund("a", 1, { now: NOW }).remaining, 1);
  assert.equal(limiter.reset("a", { now: NOW }).remaining, capacity);
  const blocked = limiter.block("a", "5s", { now: NOW });
  assert.deepEqual([blocked.allowed, blocked.remaining, blocked.retryAfterUs], [false, 0, 5 * SECOND]);
  assert.equal(limiter.peek("a", { now: NOW }).allowed, false);
  assert.equal(limiter.check("a", { cost: 0, now: NOW }).allowed, false);
  assert.equal(limiter.check("a", { cost: 1, now: NOW + SECOND }).retryAfterUs, 4 * SECOND);
  assert.equal(limiter.check("b", { cost: 1, now: NOW + SECOND }).allowed, true);
  assert.equal(limiter.check("a", { cost: 1, now: NOW + 5 * SECOND }).allowed, true);
  limiter.block("a", "5s", { now: NOW + 5 * SECOND });
  limiter.block("a", 0, { now: NOW + 5 * SECOND });
  assert.equal(limiter.peek("a", { cost: 1, now: NOW + 6 * SECOND }).allowed, true);
  for (const call of [() => limiter.refund("a", 0, { now: NOW }), () => limiter.block("a", -1, { now: NOW }), () => limiter.block("a", 60_000, { now: NOW })]) {
    assert.throws(call, { name: "ArgumentError", code: "INVALID_REQUEST" });
  }
  assert.throws(() => limiter.block("a", undefined, { now: NOW }), { name: "ArgumentError", code: "INVALID_REQUEST" });
});
