// Hostile input for the drop-in classes: prototypes that others have changed, getters, calls out of callbacks, and many waiters.
import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { moveClock, ours, outcome } from "./dropin.mjs";

const { MemoryStore } = await ours("express-rate-limit");
const flexible = await ours("rate-limiter-flexible");
const { InMemoryRateLimiter } = await ours("rolling-rate-limiter");
const { Ratelimit } = await ours("upstash");
const { RateLimiterMemory, RateLimiterQueue, RateLimiterUnion, RLWrapperBlackAndWhite } = flexible;

/** The results of each class. */
async function results() {
  const store = new MemoryStore();
  store.init({ windowMs: 60_000 });
  const memory = new RateLimiterMemory({ points: 2, duration: 1 });
  const lists = new RLWrapperBlackAndWhite({ limiter: memory });
  const rolling = new InMemoryRateLimiter({ interval: 1_000, maxInInterval: 1 });
  const ratelimit = new Ratelimit({ limiter: Ratelimit.tokenBucket(1, "1 d", 2) });
  const ends = [];
  for (let count = 0; count < 3; count++) {
    ends.push(await store.increment("a"), await outcome(memory.consume("a")), await outcome(lists.consume("b", 1, {})));
    ends.push(await rolling.limitWithInfo("a"), await outcome(ratelimit.limit("a", {})), await outcome(ratelimit.limit("b")));
  }
  ends.push(await outcome(new RateLimiterQueue(memory).removeTokens(1, "q")), await outcome(new RateLimiterUnion(memory).consume("u")));
  return ends;
}

test("what others put on Object.prototype decides nothing", async (t) => {
  moveClock(t, ["Date"]);
  const expected = await results();
  const foreign = {
    prefix: "x", maxBytes: 1, windowMs: 5, points: -5, customDuration: 900, blockDuration: 900, execEvenly: true, keyPrefix: "y",
    insuranceLimiter: 5, execEvenlyMinDelayMs: 5, interval: 5, maxInInterval: 900, minDifference: 900, rate: -5, ip: "z",
    denyList: ["a"], enableProtection: true, dynamicLimits: true, ephemeralCache: false, blackList: ["b"], whiteList: ["b"],
    isBlackListed: () => true, runActionAnyway: true, maxQueueSize: 0, value: 900, isFirst: true, allowed: true, now: 5, cost: 900,
  };
  for (const [name, value] of Object.entries(foreign)) {
    Object.defineProperty(Object.prototype, name, { value, configurable: true, writable: true, enumerable: true });
  }
  let found;
  try {
    found = await results();
  } finally {
    for (const name of Object.keys(foreign)) delete Object.prototype[name];
  }
  assert.deepEqual(found, expected);
});

test("no class starts a timer", async () => {
  const timers = () => process.getActiveResourcesInfo().filter((name) => name === "Timeout").length;
  const before = timers();
  await results();
  assert.equal(timers(), before);
});

test("options may be inherited from a class of the caller", async () => {
  class Options {
    get points() { return 5; }
    get duration() { return 1; }
  }
  assert.equal(new RateLimiterMemory(new Options()).points, 5);
});

describe("a getter that throws", () => {
  const boom = { get() { throw new Error("boom"); }, enumerable: true };
  const throwing = (name, rest = {}) => Object.defineProperty(rest, name, boom);
  test("in options", () => {
    assert.throws(() => new MemoryStore(throwing("prefix")), { message: "boom" });
    assert.throws(() => new RateLimiterMemory(throwing("points")), { message: "boom" });
    assert.throws(() => new InMemoryRateLimiter(throwing("interval")), { message: "boom" });
    assert.throws(() => new Ratelimit(throwing("limiter")), { message: "boom" });
  });
  test("in a call, which then takes nothing", async () => {
    const memory = new RateLimiterMemory({ points: 2, duration: 1 });
    await assert.rejects(memory.consume("a", 1, throwing("customDuration")), { message: "boom" });
    assert.equal(await memory.get("a"), null);
    const ratelimit = new Ratelimit({ limiter: Ratelimit.fixedWindow(2, "1h") });
    await assert.rejects(ratelimit.limit("a", throwing("rate")), { message: "boom" });
    assert.equal((await ratelimit.getRemaining("a")).remaining, 2);
  });
});

test("a callback may call the limiter again", async () => {
  const memory = new RateLimiterMemory({ points: 5, duration: 60 });
  const inner = [];
  const lists = new RLWrapperBlackAndWhite({
    limiter: memory,
    isBlackListed: (key) => {
      inner.push(memory.consume(key));
      return false;
    },
  });
  assert.equal((await lists.consume("a")).consumedPoints, 2);
  assert.equal((await inner[0]).consumedPoints, 1);
  const options = { get customDuration() { inner.push(memory.consume("b")); return 5; } };
  assert.equal((await memory.consume("b", 1, options)).consumedPoints, 2);
});

test("a list that throws rejects the promise", async () => {
  const limiter = new RateLimiterMemory({ points: 5, duration: 60 });
  const lists = new RLWrapperBlackAndWhite({ limiter, isBlackListed: () => { throw new Error("boom"); } });
  await assert.rejects(lists.consume("a"), { message: "boom" });
  assert.equal(await limiter.get("a"), null);
});

test("10,000 requests wait on 100 keys, and leave nothing behind", async (t) => {
  const move = moveClock(t);
  const limiter = new RateLimiterMemory({ points: 10, duration: 1 });
  const queue = new RateLimiterQueue(limiter);
  let done = 0;
  for (let count = 0; count < 10_000; count++) queue.removeTokens(1, `key ${count % 100}`).then(() => done++);
  for (let second = 0; second < 10; second++) {
    await new Promise(setImmediate);
    assert.equal(done, (second + 1) * 1_000);
    move(1_000);
  }
});

test("a waiter that cannot wait leaves the others in order", async (t) => {
  const move = moveClock(t);
  const queue = new RateLimiterQueue(new RateLimiterMemory({ points: 1, duration: 1 }), { maxQueueSize: 2 });
  const ends = ["a", "b", "c", "d"].map((name) => outcome(queue.removeTokens(1)).then((end) => [name, end, Date.now()]));
  const now = Date.now();
  for (let second = 0; second < 3; second++) {
    await new Promise(setImmediate);
    move(1_000);
  }
  const refused = { rejected: { error: "Number of requests reached it's maximum 2" } };
  assert.deepEqual(await Promise.all(ends), [
    ["a", { resolved: 0 }, now], ["b", { resolved: 0 }, now + 1_000], ["c", { resolved: 0 }, now + 2_000], ["d", refused, now],
  ]);
});

test("a long key and an unpaired surrogate are counted, and a key of megabytes is refused", async () => {
  const memory = new RateLimiterMemory({ points: 5, duration: 60, keyPrefix: "" });
  const store = new MemoryStore();
  store.init({ windowMs: 60_000 });
  const rolling = new InMemoryRateLimiter({ interval: 60_000, maxInInterval: 1 });
  const ratelimit = new Ratelimit({ limiter: Ratelimit.slidingWindow(1, "1 d"), prefix: "" });
  for (const key of ["x".repeat(16_383), "\udfff"]) {
    await Promise.all([memory.consume(key), store.increment(key), rolling.limit(key), ratelimit.limit(key)]);
    assert.equal((await memory.get(key)).consumedPoints, 1);
    assert.equal((await store.get(key)).totalHits, 1);
    assert.deepEqual([await rolling.limit(key), (await ratelimit.limit(key)).success], [true, false]);
  }
  const key = "x".repeat(10_000_000);
  const calls = { memory: () => memory.consume(key), store: async () => store.increment(key), rolling: () => rolling.limit(key), ratelimit: () => ratelimit.limit(key) };
  for (const [name, call] of Object.entries(calls)) {
    await assert.rejects(call, { code: "INVALID_KEY", message: /: expected at most 16384 characters, found 10000000$/ }, name);
  }
});

test("a clock that goes back grants nothing twice, and windows last their span", async (t) => {
  const move = moveClock(t, ["Date"]);
  const memory = new RateLimiterMemory({ points: 2, duration: 10 });
  move(5_000);
  await memory.consume("a", 2);
  t.mock.timers.setTime(Date.now() - 3_000);
  await assert.rejects(memory.consume("a"), flexible.RateLimiterRes);
  move(9_999);
  await assert.rejects(memory.consume("a"), flexible.RateLimiterRes);
  move(1);
  assert.equal((await memory.consume("a")).consumedPoints, 1);
});
