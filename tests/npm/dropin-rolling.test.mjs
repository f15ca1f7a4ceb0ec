// rolling-rate-limiter's class in memory and ours under the same random calls, and where they differ.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { describe, test } from "node:test";

import { compare, moveClock, ours, pick } from "./dropin.mjs";

const require = createRequire(import.meta.url);
require("microtime").now = () => Date.now() * 1000; // theirs reads the clock of the system, which no test can move
const theirs = require("rolling-rate-limiter");
const own = await ours("rolling-rate-limiter");

const IDS = ["a", "b", 7, "7", "ip:not an address", ""];
const CONFIGS = [
  { interval: 1_000, maxInInterval: 3 },
  { interval: 1_000, maxInInterval: 1 },
  { interval: 2_000, maxInInterval: 4, minDifference: 100 },
  { interval: 500, maxInInterval: 2, minDifference: 700 },
  { interval: 60_000, maxInInterval: 40, minDifference: 0.5 },
  { interval: 333.5, maxInInterval: 1, minDifference: 1.5 },
];

describe("InMemoryRateLimiter, 24,000 calls", () => {
  CONFIGS.forEach((config, place) => {
    test(JSON.stringify(config), async (t) => {
      const move = moveClock(t);
      const seed = 200 + place;
      const step = (random) => move(pick(random, [0, 0, 0, 1, 2, 50, 100, 333, 1_000]));
      const names = ["limit", "limitWithInfo", "limitWithInfo", "limitWithInfo", "wouldLimit", "wouldLimitWithInfo", "wouldLimitWithInfo"];
      const call = (random) => ({ name: random(30) === 0 ? "clear" : pick(random, names), args: [pick(random, IDS)] });
      const limiters = [theirs, own].map(({ InMemoryRateLimiter }) => new InMemoryRateLimiter(config));
      for (const name of ["interval", "maxInInterval", "minDifference"]) assert.equal(limiters[1][name], limiters[0][name]);
      const counts = await compare({ seed, calls: 4_000, limiters, step, call });
      t.diagnostic(`seed ${seed}: ${JSON.stringify(counts)}`);
    });
  });
});

test("a class of its own works as a base class", async () => {
  class Mine extends own.RateLimiter {}
  const mine = new Mine({ interval: 1, maxInInterval: 1 });
  for (const name of ["limit", "wouldLimit", "limitWithInfo", "wouldLimitWithInfo", "clear"]) {
    await assert.rejects(mine[name]("a"), { message: "Not implemented" });
  }
  assert.ok(new own.InMemoryRateLimiter({ interval: 1, maxInInterval: 1 }) instanceof own.RateLimiter);
});

describe("what differs", () => {
  test("a limiter without room refuses new ids with an error: theirs takes what memory there is", async (t) => {
    const move = moveClock(t);
    const limiter = new own.InMemoryRateLimiter({ interval: 1_000, maxInInterval: 2, minDifference: 10, maxBytes: 50_000 });
    let count = 0;
    await assert.rejects(async () => { for (; ; count++) await limiter.limit(count); }, { code: "TABLE_FULL" });
    assert.equal(await limiter.limit(0), true);
    move(2_001);
    for (let place = 0; place < count; place++) assert.equal(await limiter.limit(`other ${place}`), false);
  });

  test("an id is no object, symbol or function", async () => {
    const limiter = new own.InMemoryRateLimiter({ interval: 1_000, maxInInterval: 2 });
    for (const id of [{}, Symbol("a"), () => 1]) await assert.rejects(limiter.limit(id), { code: "INVALID_KEY" });
  });

  test("at most 1,000 actions are remembered", () => {
    new own.InMemoryRateLimiter({ interval: 1_000, maxInInterval: 1_000 });
    const make = () => new own.InMemoryRateLimiter({ interval: 1_000, maxInInterval: 1_001 });
    assert.throws(make, { code: "INVALID_OPTION", message: "`maxInInterval`: expected a whole number from 1 to 1000, found 1001" });
  });

  test("the names of objects are ids like others: theirs fails on them", async () => {
    const options = { interval: 1_000, maxInInterval: 1 };
    await assert.rejects(new theirs.InMemoryRateLimiter(options).limit("constructor"), TypeError);
    assert.equal(await new own.InMemoryRateLimiter(options).limit("constructor"), false);
  });
});

describe("misuse", () => {
  const { InMemoryRateLimiter } = own;
  for (const [name, options, message] of [
    ["no interval", { maxInInterval: 1 }, "`interval`: expected a finite number, found undefined"],
    ["an interval of 0", { interval: 0, maxInInterval: 1 }, "`interval`: expected a number above 0, found 0"],
    ["an interval below the microsecond", { interval: 1e-5, maxInInterval: 1 }, "`interval`: expected 0.001 ms to 285 years in milliseconds, found 0.00001"],
    ["an interval beyond what the core counts", { interval: 1e15, maxInInterval: 1 }, "`interval`: expected 0.001 ms to 285 years in milliseconds, found 1000000000000000"],
    ["no action", { interval: 1, maxInInterval: 0 }, "`maxInInterval`: expected a whole number from 1 to 1000, found 0"],
    ["part of an action", { interval: 1, maxInInterval: 1.5 }, "`maxInInterval`: expected a whole number from 1 to 1000, found 1.5"],
    ["a negative difference", { interval: 1, maxInInterval: 1, minDifference: -1 }, "`minDifference`: expected a finite number of at least 0, found -1"],
    ["a difference as text", { interval: 1, maxInInterval: 1, minDifference: "5" }, '`minDifference`: expected a finite number of at least 0, found "5"'],
  ]) test(name, () => assert.throws(() => new InMemoryRateLimiter(options), { code: "INVALID_OPTION", message }));
});
