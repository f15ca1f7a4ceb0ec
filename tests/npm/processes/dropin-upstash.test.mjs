// @upstash/ratelimit on a real redis-server and our class under the same random calls, and where they differ.
import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { Ratelimit } from "@upstash/ratelimit";

import { compare, moveClock, ours, outcome, pick, randomFrom } from "../dropin.mjs";
import { callsOn, stepper, testSlidingWindows, withDynamicLimits } from "../dropin-upstash.mjs";
import { startRedis } from "../redis.mjs";

const { Ratelimit: Own } = await ours("upstash");
const { client, stop } = await startRedis();
after(stop);

const IDS = ["a", "b", "ip:not an address"];
let prefixes = 0;

/** Both limiters, with the same options and a prefix of their own. */
function pair(make, options = {}, redis = client) {
  const prefix = `test-${prefixes++}`;
  return [Ratelimit, Own].map((type, place) => {
    const { ephemeralCache } = options;
    const cache = ephemeralCache instanceof Map ? { ephemeralCache: caches[place] } : {};
    return new type({ redis, limiter: make(type), prefix, timeout: 0, ...options, ...cache });
  });
}

const caches = [new Map(), new Map()];

const calls = callsOn(IDS);

describe("fixedWindow, 12,000 calls", () => {
  for (const [place, options] of [{}, { ephemeralCache: false }, { ephemeralCache: new Map() }].entries()) {
    test(place === 2 ? "a cache of the caller" : JSON.stringify(options), async (t) => {
      const move = moveClock(t, ["Date"]);
      const limiters = pair((type) => type.fixedWindow(5, "30 s"), options);
      const seed = 500 + place;
      const step = stepper(move, 30_000);
      const counts = await compare({ seed, calls: 4_000, limiters, step, call: calls([undefined, undefined, 1, 2, 7, 0, -1]) });
      if (place === 2) assert.deepEqual(caches[1], caches[0]);
      t.diagnostic(`seed ${seed}: ${JSON.stringify(counts)}`);
    });
  }
});

describe("tokenBucket, 12,000 calls", () => {
  for (const [place, [refill, interval, most, options]] of [
    [5, "10 s", 10, {}], [3, "7s", 10, { ephemeralCache: false }], [1, "1m", 4, { ephemeralCache: false }],
  ].entries()) {
    test(`${refill} each ${interval}, up to ${most}, ${JSON.stringify(options)}`, async (t) => {
      const move = moveClock(t, ["Date"]);
      const intervalMs = { "10 s": 10_000, "7s": 7_000, "1m": 60_000 }[interval];
      const limiters = pair((type) => type.tokenBucket(refill, interval, most), options, client.expiring(intervalMs));
      const seed = 510 + place;
      const counts = await compare({ seed, calls: 4_000, limiters, step: stepper(move, intervalMs), call: calls([undefined, 1, 2, 3, 4, 11]) });
      t.diagnostic(`seed ${seed}: ${JSON.stringify(counts)}`);
    });
  }
});

describe("slidingWindow, 12,000 calls", () => testSlidingWindows({ seed: 520, count: 4_000, pair, calls, client }));

describe("dynamicLimits, 4,000 calls", () => {
  for (const [place, [make, steps, limits]] of [
    [(type) => type.fixedWindow(5, "30 s"), [0, 0, 0, 1_777, 15_000, 30_000], [1, 3, 9, 40, false]],
    [(type) => type.slidingWindow(5, "30 s"), [0], [2, 5, 8, 4, false]],
  ].entries()) {
    test(["fixedWindow", "slidingWindow, which takes what was used for used at the change"][place], async (t) => {
      const move = moveClock(t, ["Date"]);
      const limiters = pair(make, { dynamicLimits: true, ephemeralCache: false });
      const call = withDynamicLimits(limits, calls([1]));
      const counts = await compare({ seed: 540 + place, calls: 2_000, limiters, step: (random) => move(pick(random, steps)), call });
      t.diagnostic(JSON.stringify(counts));
    });
  }

  test("a bucket keeps what was used: theirs keeps what is left", async () => {
    const left = [];
    for (const limiter of pair((type) => type.tokenBucket(1, "1 h", 10), { dynamicLimits: true })) {
      await limiter.limit("a", { rate: 4 });
      await limiter.setDynamicLimit({ limit: 20 });
      left.push((await limiter.limit("a")).remaining);
    }
    assert.deepEqual(left, [5, 15]);
  });
});

test("blockUntilReady waits as long as theirs", async (t) => {
  const move = moveClock(t);
  // without a cache, which would know sooner of requests at the same time than theirs, whose server must answer first
  const limiters = pair((type) => type.fixedWindow(2, "30 s"), { ephemeralCache: false });
  const random = randomFrom(530);
  const settled = [[], []];
  for (let count = 0; count < 60; count++) {
    const args = [pick(random, IDS), pick(random, [1_000, 40_000, 90_000])];
    limiters.forEach((limiter, place) => outcome(limiter.blockUntilReady(...args)).then((end) => settled[place].push([count, Date.now(), end])));
    const moves = random(3);
    for (let moved = 0; moved < moves; moved++) await moveWhileIdle(move, 2_500);
  }
  for (let moved = 0; moved < 100; moved++) await moveWhileIdle(move, 2_500);
  assert.equal(settled[0].length, 60);
  const sorted = settled.map((ends) => ends.sort(([one], [other]) => one - other));
  assert.deepEqual(sorted[1], sorted[0]);
});

/** Moves the clock once the server has answered everything that promises ask. */
async function moveWhileIdle(move, ms) {
  for (let turn = 0; turn < 4; turn++) {
    await client.send("PING");
    await new Promise(setImmediate);
  }
  move(ms);
}

test("methods work apart from their object", async () => {
  const { limit, getRemaining } = new Own({ limiter: Own.fixedWindow(2, "30 d") });
  assert.equal((await limit("a")).remaining, 1);
  assert.equal((await getRemaining("a")).remaining, 1);
});

describe("what differs", () => {
  test("the state belongs to the object: theirs belongs to the prefix in Redis", async () => {
    const make = (type) => new type({ redis: client, limiter: type.fixedWindow(1, "30 d"), prefix: "shared", timeout: 0 });
    assert.equal((await make(Ratelimit).limit("a")).success, true);
    assert.equal((await make(Ratelimit).limit("a")).success, false);
    assert.equal((await make(Own).limit("a")).success, true);
    assert.equal((await make(Own).limit("a")).success, true);
  });

  test("a sliding window weighs exactly: theirs in floating point", async (t) => {
    t.mock.timers.enable({ apis: ["Date"], now: 1_700_000_000_000 });
    const limiters = pair((type) => type.slidingWindow(20, "10 s"));
    for (const limiter of limiters) await limiter.limit("a", { rate: 10 });
    t.mock.timers.tick(19_000);
    const remaining = await Promise.all(limiters.map(async (limiter) => (await limiter.getRemaining("a")).remaining));
    assert.deepEqual(remaining, [20, 19]); // (1 - 0.9) * 10 = 0.9999999999999998
  });

  test("a rate far beyond the tokens of a sliding window counts in part", async (t) => {
    t.mock.timers.enable({ apis: ["Date"], now: 1_700_000_000_000 });
    const limiters = pair((type) => type.slidingWindow(5, "1h"), { ephemeralCache: false });
    for (const limiter of limiters) assert.equal((await limiter.limit("a", { rate: 1_000 })).success, false);
    t.mock.timers.tick(5_800_000);
    const remaining = await Promise.all(limiters.map(async (limiter) => (await limiter.getRemaining("a")).remaining));
    assert.deepEqual(remaining, [0, 2]);
  });

  test("options about Redis are taken and ignored: nothing is sent, and nothing takes time", async () => {
    const redis = new Proxy({}, { get() { throw new Error("Redis was asked"); } });
    const about = { redis, analytics: true, timeout: 1, enableTelemetry: true, denyListThreshold: 3, dynamicLimits: false };
    const own = new Own({ limiter: Own.fixedWindow(1, "30 d"), ...about });
    const { pending, reset, ...said } = await own.limit("a");
    assert.equal(await pending, undefined);
    assert.deepEqual(said, { success: true, limit: 1, remaining: 0 });
  });

  test("tokens that are given back fill a bucket or a sliding window only up to its limit", async () => {
    const [theirs, own] = pair((type) => type.tokenBucket(1, "1h", 5));
    const left = async (limiter) => (await limiter.limit("a", { rate: -3 })).remaining;
    assert.deepEqual([await left(theirs), await left(own)], [8, 5]);
    const [their, our] = pair((type) => type.slidingWindow(5, "30 d"));
    assert.deepEqual([await left(their), await left(our)], [8, 5]);
    const windows = pair((type) => type.fixedWindow(5, "30 d"));
    assert.deepEqual(await Promise.all(windows.map(left)), [8, 8], "a fixed window has no such bound");
    for (const limiter of [their, our]) await limiter.limit("b", { rate: 3 });
    const back = async (limiter) => (await limiter.limit("b", { rate: -2 })).remaining;
    assert.deepEqual([await back(their), await back(our)], [4, 4]);
  });

  test("resetUsedTokens resets one identifier: theirs also those that begin with it and a colon", async () => {
    const remaining = [];
    for (const limiter of pair((type) => type.fixedWindow(5, "30 d"))) {
      await limiter.limit("user:1");
      await limiter.resetUsedTokens("user");
      remaining.push((await limiter.getRemaining("user:1")).remaining);
    }
    assert.deepEqual(remaining, [5, 4]);
  });

  test("a denied value is refused without counting: theirs counts it first, and remembers it for a minute", async () => {
    const prefix = "denied";
    await client.send("SADD", `${prefix}:denyList:all`, "192.0.2.1");
    await client.send("SET", `${prefix}:ipDenyListStatus`, "valid"); // theirs would fetch a list of addresses
    const theirs = new Ratelimit({ redis: client, limiter: Ratelimit.fixedWindow(5, "30 d"), prefix, enableProtection: true, timeout: 0 });
    const own = new Own({ limiter: Own.fixedWindow(5, "30 d"), prefix, enableProtection: true, denyList: ["192.0.2.1"] });
    const ask = (limiter) => outcome(limiter.limit("a", { ip: "192.0.2.1" }));
    assert.deepEqual((await ask(theirs)).resolved.limit, 5);
    assert.deepEqual(await ask(own), await ask(theirs));
    assert.deepEqual([(await theirs.getRemaining("a")).remaining, (await own.getRemaining("a")).remaining], [4, 5]);
    assert.equal((await own.limit("a", { ip: "192.0.2.2" })).success, true);
    await assert.rejects(own.blockUntilReady("192.0.2.1", 1_000), { message: "`identifier`: expected one that is not denied, found 192.0.2.1" });
  });

  test("the own cache forgets the oldest of 10,000 identifiers, whose refusals then have no reason", async () => {
    const { limit } = new Own({ limiter: Own.fixedWindow(0, "30 d") });
    await limit("first");
    assert.equal((await limit("first")).reason, "cacheBlock");
    for (let count = 0; count < 10_000; count++) await limit(`${count}`);
    const { success, reason } = await limit("first");
    assert.deepEqual([success, reason], [false, undefined]);
  });

  test("a limiter without room refuses new identifiers with an error", async () => {
    const { limit } = new Own({ limiter: Own.slidingWindow(5, "30 d"), maxBytes: 20_000 });
    await assert.rejects(async () => { for (let count = 0; ; count++) await limit(`${count}`); }, { code: "TABLE_FULL" });
    assert.equal((await limit("0")).remaining, 3);
  });
});

describe("misuse", () => {
  const limiter = Own.fixedWindow(5, "1h");
  for (const [name, make, message] of [
    ["no algorithm", () => new Own({}), '`limiter`: expected an algorithm such as `Ratelimit.slidingWindow(10, "10 s")`, found undefined'],
    ["a prefix that is no text", () => new Own({ limiter, prefix: 5 }), "`prefix`: expected a string, found 5"],
    ["a cache that is no map", () => new Own({ limiter, ephemeralCache: {} }), "`ephemeralCache`: expected a Map or `false`, found [object Object]"],
    ["a list that is a text", () => new Own({ limiter, enableProtection: true, denyList: "a" }), '`denyList`: expected an array of denied values, found "a"'],
    ["a list of something else", () => new Own({ limiter, enableProtection: true, denyList: 5 }), "`denyList`: expected an array of denied values, found 5"],
    ["a list in Redis", () => new Own({ limiter, enableProtection: true }), "`denyList`: expected the denied values, because those of the dashboard are in Redis, found undefined"],
    ["tokens as text", () => Own.fixedWindow("5", "1h"), '`tokens`: expected a finite number, found "5"'],
    ["part of a token", () => Own.slidingWindow(1.5, "1h"), "`tokens`: expected a whole number from 0 to 1125899906842624, found 1.5"],
    ["too many tokens", () => new Own({ limiter: Own.slidingWindow(2 ** 40, "1d") }), "`tokens`: expected at most 26687997 in such a window, found 1099511627776"],
    ["no refill", () => Own.tokenBucket(0, "1h", 5), "`refillRate`: expected a whole number from 1 to 1125899906842624, found 0"],
    ["no tokens", () => Own.tokenBucket(1, "1h", 0), "`maxTokens`: expected a whole number from 1 to 1125899906842624, found 0"],
    ["a duration without a unit", () => Own.fixedWindow(5, "10"), '`window`: expected a duration of at least 1 ms, such as "10 s", found "10"'],
    ["no duration", () => Own.fixedWindow(5), '`window`: expected a duration of at least 1 ms, such as "10 s", found undefined'],
    ["a duration of 0", () => Own.tokenBucket(5, "0 s", 5), '`interval`: expected a duration of at least 1 ms, such as "10 s", found "0 s"'],
  ]) test(name, () => assert.throws(make, { code: "INVALID_OPTION", message }));

  test("nothing in the place of an option is as in theirs", async () => {
    const limiters = pair((type) => type.fixedWindow(1, "30 d"), { ephemeralCache: null });
    for (let count = 0; count < 3; count++) {
      const [one, other] = await Promise.all(limiters.map((own) => outcome(own.limit("a", { rate: null, ip: null }))));
      assert.deepEqual(other, one);
    }
  });

  test("a rate that is no whole number, and a timeout of 0", async () => {
    const own = new Own({ limiter });
    for (const rate of [1.5, NaN, "2", 2 ** 41]) await assert.rejects(own.limit("a", { rate }), { code: "INVALID_OPTION" });
    for (const [timeout, found] of [[0, "0"], ["1", '"1"'], [null, "null"], [NaN, "NaN"]]) {
      await assert.rejects(own.blockUntilReady("a", timeout), { message: `\`timeout\`: expected a number of milliseconds above 0, found ${found}` });
    }
  });
});
