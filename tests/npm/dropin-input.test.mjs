// Keys of any kind and length, clocks that go back, and options that are wrong, in all drop-in classes.
import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { moveClock, ours, START_MS } from "./dropin.mjs";

const { MemoryStore } = await ours("express-rate-limit");
const { RateLimiterMemory } = await ours("rate-limiter-flexible");
const { InMemoryRateLimiter } = await ours("rolling-rate-limiter");
const { Ratelimit } = await ours("upstash");

function storeOf(options) {
  const store = new MemoryStore(options);
  store.init({ windowMs: 10_000 });
  return store;
}

/** One action in 10 seconds: returns whether a key may act. */
const LIMITERS = {
  MemoryStore: () => {
    const store = storeOf();
    return async (key) => (await store.increment(key)).totalHits <= 1;
  },
  RateLimiterMemory: () => {
    const limiter = new RateLimiterMemory({ points: 1, duration: 10 });
    return (key) => limiter.consume(key).then(() => true, (refusal) => {
      if (refusal instanceof Error) throw refusal;
      return false;
    });
  },
  InMemoryRateLimiter: () => {
    const limiter = new InMemoryRateLimiter({ interval: 10_000, maxInInterval: 1 });
    return async (key) => !(await limiter.limit(key));
  },
};
for (const name of ["fixedWindow", "slidingWindow"]) {
  LIMITERS[name] = () => {
    const { limit } = new Ratelimit({ limiter: Ratelimit[name](1, "10 s"), ephemeralCache: false });
    return async (key) => (await limit(key)).success;
  };
}
LIMITERS.tokenBucket = () => {
  const { limit } = new Ratelimit({ limiter: Ratelimit.tokenBucket(1, "10 s", 1) });
  return async (key) => (await limit(key)).success;
};

const LONG = "x".repeat(600);
for (const [name, make] of Object.entries(LIMITERS)) {
  describe(name, () => {
    test("counts keys of any kind and length", async (t) => {
      moveClock(t, ["Date"]);
      for (const key of ["x".repeat(160), "x".repeat(161), LONG, `${LONG}a`, "ü".repeat(300), "\u{1f600}".repeat(500), "\ud800", undefined, null, true, 5n, 7]) {
        const may = make();
        assert.deepEqual([await may(key), await may(key)], [true, false], String(key).slice(0, 20));
        assert.equal(await may(`${LONG}b`), true);
        assert.equal(await may("other"), true);
      }
    });

    test("refuses a key for no longer than its window after the clock goes back", async (t) => {
      t.mock.timers.enable({ apis: ["Date"], now: 1_700_000_000_000 });
      const may = make();
      assert.deepEqual([await may("a"), await may("a")], [true, false]);
      t.mock.timers.setTime(1_700_000_000_000 - 3_600_000);
      assert.equal(await may("a"), false);
      t.mock.timers.tick(20_000);
      assert.equal(await may("a"), true);
    });

    test("refuses a symbol with an error that names it", async () => {
      await assert.rejects(async () => make()(Symbol("a")), { code: "INVALID_KEY", message: /expected a string or a number, found a symbol$/ });
    });
  });
}

test("keys whose texts could be alike are counted apart, and no string is read as an address", async (t) => {
  moveClock(t, ["Date"]);
  const texts = ["", "7", "number:7", "true", "boolean:true", "null", "object:null", "undefined", "undefined:undefined", "ip:192.0.2.7", "ip:x", "ip:2001:db8::1", "ip:2001:db8::2"];
  const keys = [...texts, ...texts.map((text) => `=${text}`), ...texts.map((text) => `==${text}`), 7, 7n, true, null, undefined];
  const memory = new RateLimiterMemory({ points: 1, duration: 10, keyPrefix: "" });
  const prefixed = new RateLimiterMemory({ points: 1, duration: 10, keyPrefix: "ip" });
  for (const key of keys) assert.equal((await memory.consume(key)).consumedPoints, 1, String(key));
  for (const text of texts) assert.equal((await prefixed.consume(text)).consumedPoints, 1, text);
  for (const key of keys) assert.equal((await memory.get(key)).consumedPoints, 1, String(key));
});

test("times are those of the real clock after it has gone back", async (t) => {
  moveClock(t, ["Date"]);
  const store = storeOf();
  await store.increment("a");
  const { limit, getRemaining } = new Ratelimit({ limiter: Ratelimit.tokenBucket(1, "10 s", 1) });
  await limit("a");
  t.mock.timers.setTime(START_MS - 5_000);
  assert.equal((await store.increment("a")).resetTime.getTime(), START_MS + 5_000);
  for (let count = 0; count < 2; count++) assert.equal((await limit("a")).reset, START_MS + 5_000);
  assert.equal((await getRemaining("a")).reset, START_MS + 5_000);
});

test("a prefix has any length", async () => {
  const store = storeOf({ prefix: LONG });
  await store.increment("a");
  assert.equal((await store.increment("a")).totalHits, 2);
  assert.equal((await store.increment("b")).totalHits, 1);
});

test("a window may be the text of a number, as in an environment", () => {
  const store = new MemoryStore();
  store.init({ windowMs: "60000" });
  assert.equal(store.windowMs, 60_000);
});

describe("misuse", () => {
  const limiter = Ratelimit.fixedWindow(5, "1h");
  for (const [name, make, message] of [
    ["a store of a number", () => new MemoryStore(5), "`options`: expected an object, found 5"],
    ["an unknown option", () => new MemoryStore({ windowMs: 5 }), '`options`: expected `prefix` or `maxBytes`, found "windowMs"'],
    ["an algorithm of another kind", () => new Ratelimit({ limiter: () => ({}) }), /^`limiter`: expected an algorithm/],
    ["a list without protection", () => new Ratelimit({ limiter, denyList: ["a"] }), "`enableProtection`: expected `true` beside a `denyList`, found false"],
    ["a window too long", () => Ratelimit.slidingWindow(1, "999999999 w"), '`window`: expected at most 36500 d, found "999999999 w"'],
    ["an interval too long", () => Ratelimit.tokenBucket(1, "999999999 w", 1), '`interval`: expected at most 36500 d, found "999999999 w"'],
    ["a long text", () => new RateLimiterMemory({ points: LONG, duration: 1 }), `\`points\`: expected a finite number, found "${"x".repeat(98)}…`],
    ["a bigint", () => new RateLimiterMemory({ points: 5n, duration: 1 }), "`points`: expected a finite number, found 5n"],
    ["an object without a prototype", () => new RateLimiterMemory({ points: Object.create(null), duration: 1 }), "`points`: expected a finite number, found an object"],
  ]) test(name, () => assert.throws(make, { code: "INVALID_OPTION", message }));
});
