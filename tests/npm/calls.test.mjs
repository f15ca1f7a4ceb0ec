// These tests make the calls beside a decision: refunds, explanations, dumps, updates, lists of limited keys.
import assert from "node:assert/strict";
import { test } from "node:test";

import { load } from "./installed.mjs";

const { ArgumentError, FullError, Limiter, LimiterError, PolicyError } = await load();
const { toml } = await load("tidegate/toml");

const NOW = 1_700_000_000_000_000;
const SECOND = 1_000_000;
const now = NOW;

const window = (limit, others = {}) => ({ algorithm: "fixed_window", limit, period: "1h", ...others });
const five = (others = {}) => new Limiter({ limits: [window(5)], ...others });
const left = (limiter, key = "a") => limiter.peek(key, { now }).remaining;

test("errors are classes with a code", () => {
  const limiter = five();
  for (const [call, type, code] of [
    [() => new Limiter(toml("limits = [")), PolicyError, "INVALID_POLICY"],
    [() => limiter.check(5), ArgumentError, "INVALID_KEY"],
    [() => limiter.check("a", 5), ArgumentError, "INVALID_REQUEST"],
    [() => limiter.check("a", { cost: 6 }), ArgumentError, "COST_EXCEEDS_CAPACITY"],
    [() => { for (let key = 0; ; key++) full.check(`${key}`, { now }); }, FullError, "TABLE_FULL"],
    [() => freed.check("a"), LimiterError, "FREED"],
  ]) {
    const full = new Limiter({ limits: [window(5)] }, { maxBytes: 20_000 });
    const freed = five();
    freed.free();
    globalThis.full = full;
    globalThis.freed = freed;
    assert.throws(call, (error) => {
      assert.ok(error instanceof type && error instanceof LimiterError && error instanceof Error);
      assert.deepEqual([error.code, error.name, Object.keys(error)[0]], [code, type.name, "code"]);
      return true;
    });
  }
  delete globalThis.full;
  delete globalThis.freed;
});

test("a grant gives its units back once, without bookkeeping", () => {
  const limiter = five();
  const grant = limiter.decide("a", { cost: 4, now });
  assert.deepEqual(grant.refund(1, { now }), limiter.peek("a", { now }));
  assert.equal(left(limiter), 2);
  assert.throws(() => grant.refund(4, { now }), { name: "ArgumentError", message: "`units`: expected a whole number from 0 to 3, found 4" });
  assert.deepEqual([grant.refund(undefined, { now }).remaining, grant.refund()], [5, undefined]);
  const refused = limiter.decide("b", { cost: 5, now }) && limiter.decide("b", { cost: 2, now });
  assert.deepEqual([refused.allowed, refused.refund(), left(limiter, "b")], [false, undefined, 0]);
  const shadow = five({ shadow: true });
  shadow.decide("a", { cost: 5, now });
  const passed = shadow.decide("a", { cost: 5, now });
  assert.deepEqual([passed.allowed, passed.wouldAllow, passed.refund()], [true, false, undefined], "it took nothing");
  assert.equal(left(shadow), 0);
});

test("a grant gives back the units of its window, and no others", () => {
  const later = { now: NOW + 3_600 * SECOND };
  for (const limit of [{ algorithm: "sliding_log", rates: ["5/h"] }, window(5), { algorithm: "sliding_window", limit: 5, period: "30m" }]) {
    const limiter = new Limiter({ limits: [limit] });
    const old = limiter.decide("a", { cost: 3, now });
    limiter.check("a", { cost: 4, ...later });
    assert.equal(old.refund(undefined, later).remaining, 1, `${limit.algorithm}: the window of three has ended`);
  }
  const bucket = new Limiter({ limits: [{ algorithm: "token_bucket", capacity: 50, rate: "1/s" }] });
  const spent = bucket.decide("a", { cost: 50, now });
  assert.equal(spent.refund(50, { now: NOW + 40 * SECOND }).remaining, 50, "40 have flowed in, so 10 come back");
  const log = new Limiter({ limits: [{ algorithm: "sliding_log", rates: ["5/h"] }] });
  const grant = log.decide("a", { cost: 2, now });
  log.check("a", { cost: 3, now: NOW + SECOND });
  grant.refund(1, { now: NOW + 2 * SECOND });
  assert.equal(log.peek("a", { now: NOW + 3_600 * SECOND }).remaining, 2, "one of two, which were granted at the first moment");
});

test("a grant of a limiter that was freed releases nothing", async () => {
  const [dispose, asyncDispose] = ["dispose", "asyncDispose"].map((name) => Symbol[name] ?? Symbol.for(`Symbol.${name}`));
  const jobs = new Limiter({ limits: [{ algorithm: "concurrency", capacity: 1, time_to_live: "1m" }] });
  const lease = jobs.acquire("a");
  jobs.free();
  lease[dispose]();
  await lease[asyncDispose]();
  assert.throws(() => lease.release(), { name: "LimiterError", code: "FREED" });
});

test("a lease of limits that an update has replaced is let go of without an error", async () => {
  const [dispose, asyncDispose] = ["dispose", "asyncDispose"].map((name) => Symbol[name] ?? Symbol.for(`Symbol.${name}`));
  const jobs = new Limiter({ limits: [{ algorithm: "concurrency", capacity: 2, time_to_live: "1m" }] });
  const [first, second] = [jobs.acquire("a"), jobs.acquire("a")];
  jobs.update({ limits: [window(5)] });
  first[dispose]();
  await second[asyncDispose]();
  assert.throws(() => second.release(), { code: "INVALID_REQUEST" });
});

test("a getter that refunds the same grant takes effect once", () => {
  const limiter = five();
  const grant = limiter.decide("a", { cost: 4, now });
  let reads = 0;
  grant.refund(1, { get now() { reads++; grant.refund(3, { now }); return now; } });
  assert.deepEqual([reads, limiter.peek("a", { now }).remaining], [1, 5]);
});

test("a lease is released at the end of its block", async () => {
  const jobs = new Limiter({ limits: [{ algorithm: "concurrency", capacity: 1, time_to_live: "1m" }] });
  const [dispose, asyncDispose] = ["dispose", "asyncDispose"].map((name) => Symbol[name] ?? Symbol.for(`Symbol.${name}`));
  const lease = jobs.acquire("a");
  const second = jobs.acquire("a");
  assert.deepEqual([lease.allowed, second.allowed, lease.renew().live], [true, false, true]);
  second[dispose]();
  assert.equal(jobs.peek("a").remaining, 0, "a refused one holds nothing");
  await lease[asyncDispose]();
  assert.equal(jobs.peek("a").remaining, 1);
  const next = jobs.acquire("a");
  lease[dispose]();
  assert.equal(jobs.peek("a").remaining, 0, "only once");
  assert.deepEqual([next.release(), next.release()], [true, false]);
  const grant = five().decide("a", { now });
  grant[dispose]();
  assert.throws(() => grant.renew(), { code: "INVALID_REQUEST" });
});

test("an explanation names the limit and the rate or gap", () => {
  const limiter = new Limiter({
    limits: [{ algorithm: "sliding_log", name: "log", rates: ["2/s", "3/m"], min_gap: "10ms" }, window(9, { name: "hour" })],
    deny: ["bad"],
  });
  limiter.check("a", { now });
  const gap = limiter.explain("a", { now });
  assert.deepEqual([gap.allowed, gap.limitName, gap.bound], [false, "log", "requests at least 10 ms apart"]);
  assert.match(gap.text, /^`log` refuses \(requests at least 10 ms apart\): .* it passes in 10 ms\.$/);
  assert.deepEqual([gap.retryAfterUs, gap.limits.length], [10_000, 2]);
  limiter.check("a", { now: now + 10_000 });
  assert.equal(limiter.explain("a", { now: now + 20_000 }).bound, "2 in any 1 s");
  assert.equal(limiter.explain("a", { now: now + 5 * SECOND, cost: 2 }).bound, "3 in any 1 m");
  assert.equal(limiter.explain("b", { now }).allowed, true);
  assert.deepEqual([limiter.explain("bad", { now }).limitName, limiter.explain("bad", { now }).bound], [undefined, ""]);
  limiter.block("b", "1m30s", { now });
  assert.equal(limiter.explain("b", { now }).text, "The key is blocked for another 1 m 30 s.");
  assert.throws(() => limiter.explain("a", { cost: 3, now }), { code: "COST_EXCEEDS_CAPACITY" });
  assert.equal(limiter.size, 2, "an explanation makes no state");
});

test("a span is a text, and only the 0 that ends a block needs no unit", () => {
  const limiter = five();
  for (const [span, us] of [["1.5s", 1_500_000], ["4 s", 4 * SECOND], ["1m30s", 90 * SECOND], ["7us", 7]]) {
    limiter.block("a", span, { now });
    assert.equal(limiter.check("a", { now }).retryAfterUs, us, `${span}`);
  }
  for (const [span, message] of [
    ["1.5", /^`span`: expected a span of time in whole microseconds.*; found "1\.5"$/], ["", /found ""$/],
    [60_000, /^`span`: expected a span such as "60s", found 60000 \(a number\)$/], [-1, /found -1 \(a number\)$/], [undefined, /expected a span such as "60s", found undefined$/],
    [5n, /found a bigint$/], ["\ud800", /lone surrogate/], ["9".repeat(1_001), /at most 1000 characters/],
  ]) {
    assert.throws(() => limiter.block("a", span, { now }), { name: "ArgumentError", code: "INVALID_REQUEST", message });
  }
  limiter.block("a", 0, { now });
  assert.equal(limiter.check("a", { now }).allowed, true);
});

test("the spans of calls are those of a policy", () => {
  const texts = ["9007199254740991us", "9007199254740992us", "0s", "00.5ms", "1.0000000000000000000s", "1.00000000000000000000s", "18446744073709551616us", ".5s", "1.s", "1s ", " 1s", "1 s 2ms", "1.5s2ms", "1S", "1min1m", "104249d", "104250d"];
  const pick = (among, seed) => among[Math.floor(seed % 1 * among.length)];
  for (let i = 1; i < 4_000; i++) {
    const parts = Array.from({ length: 1 + i % 3 }, (_, place) => {
      const seed = (salt) => Math.abs(Math.sin(i * 12.9898 + place * 78.233 + salt)) * 43_758.5453;
      return `${pick(["", "0", "1", "15", "007", "2.5", "0.25", "1.5.2", "3.", "90071992547409"], seed(1))}${pick(["", "", "", " ", "  "], seed(2))}${pick(["d", "h", "m", "min", "s", "ms", "us", "µs", "w", ""], seed(3))}${pick(["", "", " "], seed(4))}`;
    });
    texts.push(parts.join(""), parts.slice(0, 1).join("").trim());
  }
  const outcome = (call) => {
    try {
      return call();
    } catch ({ message }) {
      return message.slice(message.indexOf("expected"));
    }
  };
  let read = 0;
  for (const text of new Set(texts)) {
    const window = outcome(() => new Limiter({ limits: [{ algorithm: "fixed_window", limit: 1, period: text, start: "first" }] }).check("a", { now: 0 }).resetAfterUs);
    const limiter = five();
    const block = outcome(() => limiter.block("a", text, { now: 0 }).retryAfterUs);
    if (typeof window === "number") read++;
    assert.equal(block, window, JSON.stringify(text));
  }
  assert.ok(read > 100, `${read} spans`);
});

test("what a key has used can be set, and all keys be reset", () => {
  const limiter = five();
  assert.equal(limiter.set("a", 3, { now }).remaining, 2);
  assert.equal(limiter.check("a", { cost: 3, now }).allowed, false);
  assert.equal(limiter.set("a", 0, { now }).remaining, 5);
  limiter.set("b", 9, { now });
  assert.equal(limiter.refund("b", 4, { now }).remaining, 0, "a debt is paid off first");
  limiter.resetAll();
  assert.deepEqual([limiter.size, left(limiter, "b")], [0, 5]);
  for (const used of [-1, 0.5, NaN, "1", undefined]) {
    assert.throws(() => limiter.set("a", used, { now }), { name: "ArgumentError", code: "INVALID_REQUEST" });
  }
});

test("the keys that are limited are iterated", () => {
  const limiter = five();
  for (let key = 0; key < 30_000; key++) limiter.check(`k${key}`, { cost: key % 100 === 0 ? 5 : 1, now });
  limiter.block("blocked\0", "5s", { now });
  const found = [...limiter.limited({ now })];
  assert.equal(found.length, 301);
  assert.deepEqual(found.find(({ key }) => key === "blocked\0"), { key: "blocked\0", limit: undefined, retryAfterUs: 5 * SECOND });
  assert.equal(found.find(({ key }) => key === "k100").limit, "policy");
  const iterated = limiter.limited({ now });
  iterated.next();
  limiter.free();
  assert.throws(() => iterated.next(), { code: "FREED" });
  assert.throws(() => limiter.waiting, { code: "FREED" });
});

test("a dump is restored, and a wrong one is refused and changes nothing", () => {
  const policy = (limit) => ({ limits: [window(limit), { algorithm: "concurrency", capacity: 9, time_to_live: "1m" }], on_change: "reset" });
  const limiter = new Limiter(policy(5));
  limiter.acquire("a", { cost: 3, lease: "one", now });
  limiter.block("b", "1m", { now });
  const dump = limiter.dump();
  assert.ok(dump instanceof Uint8Array);
  const other = new Limiter(policy(5));
  other.acquire("z", { lease: "x", now });
  for (const bytes of [dump, dump.buffer.slice(dump.byteOffset, dump.byteOffset + dump.length), new DataView(dump.buffer, dump.byteOffset, dump.length)]) {
    other.restore(bytes);
    assert.deepEqual([other.size, other.release("a", "one", { now }).live, other.peek("a", { now }).limits[0].remaining], [2, true, 2]);
    assert.equal(other.check("b", { cost: 0, now }).remaining, 0);
  }
  const forged = Uint8Array.from(dump, (byte, at) => (at === dump.length - 5 ? byte ^ 1 : byte));
  for (const [bytes, message] of [
    [new Uint8Array(), /found none/], [new Uint8Array([3]), /expected version 2, found 3/], [new Uint8Array(dump.length), /expected version 2, found 0/],
    [dump.slice(0, -1), /found changed ones/], [forged, /found changed ones/], [new Uint8Array(100_000).fill(2), /found changed ones/],
    [five().dump().slice(0, 5), /changed/],
  ]) {
    assert.throws(() => other.restore(bytes), { name: "ArgumentError", code: "INVALID_DUMP", message });
  }
  const detached = dump.slice();
  structuredClone(detached.buffer, { transfer: [detached.buffer] });
  const view = new DataView(dump.slice().buffer);
  structuredClone(view.buffer, { transfer: [view.buffer] });
  for (const bytes of [detached, detached.buffer, view]) {
    assert.throws(() => other.restore(bytes), { name: "ArgumentError", code: "INVALID_DUMP" });
  }
  for (const bytes of [undefined, null, "x", 5, [1], {}]) {
    assert.throws(() => other.restore(bytes), { name: "ArgumentError", code: "INVALID_DUMP", message: /expected bytes/ });
  }
  assert.throws(() => new Limiter(policy(6)).restore(dump), { code: "INVALID_DUMP", message: /found one of others on/ });
  assert.equal(other.size, 2);
  const small = new Limiter({ limits: [window(5)] }, { maxBytes: 20_000 });
  const large = five();
  for (let key = 0; key < 5_000; key++) large.check(`${key}`, { now });
  assert.throws(() => small.restore(large.dump()), { name: "FullError", code: "TABLE_FULL" });
  assert.equal(small.size, 0);
});

test("an update honours on_change, and a wrong one changes nothing", () => {
  for (const [rule, expected] of [["reset", 10], ["keep", 7], ["proportional", 4]]) {
    const limiter = five({ on_change: rule });
    limiter.check("a", { cost: 3, now });
    limiter.update({ limits: [window(10)], on_change: rule });
    const { remaining, limits: [{ name }] } = limiter.peek("a", { now });
    assert.deepEqual([name, remaining], ["policy", expected], rule);
    assert.throws(() => limiter.update({ limits: [] }), { name: "PolicyError", code: "INVALID_POLICY" });
    assert.throws(() => limiter.update(toml("[policies.a]"), { policy: "b" }), { name: "PolicyError" });
    assert.throws(() => limiter.update({ limits: [window(1)] }, { maxBytes: 5 }), { code: "INVALID_OPTION" });
    assert.equal(left(limiter), expected);
  }
  const limiter = five({ cost: 2 });
  assert.equal(limiter.check("a", { now }).remaining, 3);
  limiter.update({ limits: [window(5)], shadow: true });
  assert.deepEqual([limiter.check("a", { now }).remaining, limiter.check("a", { cost: 5, now }).wouldAllow], [2, false]);
});

test("a bucket whose rate is updated does not read the past at the new rate", () => {
  const of = (rate) => ({ limits: [{ algorithm: "token_bucket", capacity: 100, rate }] });
  for (const [from, to, expected] of [["10/s", "1/m", 90], ["1/m", "10/s", 0]]) {
    const limiter = new Limiter(of(from));
    limiter.check("a", { cost: 100, now });
    limiter.update(of(to), { now: now + 9_000_000 });
    assert.equal(limiter.peek("a", { now: now + 9_000_000 }).remaining, expected, from);
    assert.throws(() => limiter.update(of(to), { now: -1 }), { code: "INVALID_NOW" });
  }
});

test("a getter that throws or calls the limiter does no harm", () => {
  const limiter = five();
  const boom = new Error("boom");
  const throwing = { get cost() { throw boom; } };
  for (const call of [
    () => limiter.check("a", throwing), () => limiter.decide("a", throwing), () => limiter.peek("a", throwing),
    () => limiter.explain("a", throwing), () => limiter.check("a", { get limits() { throw boom; } }),
    () => limiter.report("a", { get admitted() { throw boom; } }), () => limiter.update({ get limits() { throw boom; } }),
    () => limiter.check("a", { limits: [{ get algorithm() { throw boom; } }] }),
  ]) {
    assert.throws(call, boom);
  }
  assert.equal(limiter.size, 0);
  const reentrant = { get cost() { limiter.check("b", { cost: 5, now }); return 2; }, get now() { limiter.check("ccc", { now }); return now; } };
  assert.equal(limiter.check("a", reentrant).remaining, 3);
  assert.deepEqual([left(limiter, "b"), left(limiter, "ccc")], [0, 4]);
  const nested = { get limits() { limiter.check("d", { limits: [window(7)], now }); return [window(9)]; }, now };
  assert.deepEqual([limiter.check("e", nested).limit, limiter.check("f", { now }).limit], [9, 5]);
  const freeing = { get cost() { limiter.free(); return 1; } };
  assert.throws(() => limiter.check("a", freeing), { code: "FREED" });
});

test("fields of a prototype, long keys and use after free are refused in every call", () => {
  const limiter = five();
  const calls = {
    check: (key, options) => limiter.check(key, options), decide: (key, options) => limiter.decide(key, options),
    peek: (key, options) => limiter.peek(key, options), explain: (key, options) => limiter.explain(key, options),
    refund: (key, options) => limiter.refund(key, 1, options), reset: (key, options) => limiter.reset(key, options),
    block: (key, options) => limiter.block(key, "1s", options), set: (key, options) => limiter.set(key, 1, options),
  };
  for (const [name, call] of Object.entries(calls)) {
    for (const key of ["x".repeat(1_048_576), "é".repeat(524_288), "", "\ud800", 5, undefined, null, { toString: () => "a" }]) {
      assert.throws(() => call(key, { now }), { name: "ArgumentError", code: "INVALID_KEY" }, `${name} ${typeof key}`);
    }
    for (const options of [Object.create({ now }), [now], new Map(), 5, "x", null, { colour: 1 }]) {
      assert.throws(() => call("a", options), { name: "ArgumentError", code: "INVALID_REQUEST" }, name);
    }
    for (const wrong of [-1, 0.5, NaN, Infinity, "1", 1n, null]) {
      assert.throws(() => call("a", { now: wrong }), { name: "ArgumentError", code: "INVALID_NOW" }, `${name} ${wrong}`);
    }
  }
  assert.equal(limiter.size, 0);
  limiter.free();
  for (const call of [
    ...Object.values(calls).map((call) => () => call("a")), () => limiter.dump(), () => limiter.restore(new Uint8Array(9)),
    () => limiter.update({ limits: [window(1)] }), () => limiter.resetAll(), () => [...limiter.limited()],
  ]) {
    assert.throws(call, { name: "LimiterError", code: "FREED" });
  }
});
