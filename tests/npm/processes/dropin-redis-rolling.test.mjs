// rolling-rate-limiter's classes in Redis and ours under the same random calls, and where they differ.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { describe, test } from "node:test";

import { compare, moveClock, ours, pick } from "../dropin.mjs";
import { startClients } from "../dropin-redis.mjs";

const require = createRequire(import.meta.url);
require("microtime").now = () => Date.now() * 1000; // theirs reads the clock of the system, which no test can move
const theirs = require("rolling-rate-limiter");
const own = await ours("rolling-rate-limiter/redis");
const { io, node } = await startClients();

const IDS = ["a", "b", 7, "7", "ip:not an address", "", "}"];
// theirs lets Redis remove ids by its own clock, after the interval in whole seconds
const CONFIGS = [
  ["RedisRateLimiter", io, { interval: 100_000, maxInInterval: 3 }],
  ["RedisRateLimiter", node, { interval: 100_000, maxInInterval: 1 }],
  ["IORedisRateLimiter", io, { interval: 200_000, maxInInterval: 4, minDifference: 10_000 }],
  ["NodeRedisRateLimiter", node, { interval: 50_000, maxInInterval: 2, minDifference: 70_000 }],
  ["IORedisRateLimiter", io, { interval: 6_000_000, maxInInterval: 40, minDifference: 0.5 }],
  ["RedisRateLimiter", io, { interval: 33_300.5, maxInInterval: 1, minDifference: 1.5 }],
];

describe("the classes in Redis, 6,000 calls", () => {
  CONFIGS.forEach(([name, client, config], place) => {
    test(`${name}: ${JSON.stringify(config)}`, async (t) => {
      const move = moveClock(t, ["Date"]);
      const seed = 800 + place;
      const step = (random) => move(pick(random, [0, 0, 0, 1, 200, 5_000, 10_000, 33_300, 100_000]));
      const names = ["limit", "limitWithInfo", "limitWithInfo", "limitWithInfo", "wouldLimit", "wouldLimitWithInfo", "wouldLimitWithInfo"];
      const call = (random) => ({ name: random(30) === 0 ? "clear" : pick(random, names), args: [pick(random, IDS)] });
      const limiters = [theirs, own].map((types, of) => new types[name]({ client, namespace: `rolling-${of}-${place}:`, ...config }));
      for (const field of ["interval", "maxInInterval", "minDifference", "detectedClientType"]) assert.equal(limiters[1][field], limiters[0][field]);
      const counts = await compare({ seed, calls: 1_000, limiters, step, call });
      t.diagnostic(`seed ${seed}: ${JSON.stringify(counts)}`);
    });
  });
});

test("two limiters share the actions of an id, and those of the library stay apart", async () => {
  const options = { namespace: "shared:", interval: 100_000, maxInInterval: 50 };
  const limiters = [new own.RedisRateLimiter({ client: io, ...options }), new own.RedisRateLimiter({ client: node, ...options }), new theirs.RedisRateLimiter({ client: io, ...options })];
  const blocked = await Promise.all(Array.from({ length: 300 }, (_, place) => limiters[place % 3].limit("a")));
  const passed = (places) => blocked.filter((isBlocked, place) => !isBlocked && places.includes(place % 3)).length;
  assert.deepEqual([passed([0, 1]), passed([2])], [50, 50]);
});

for (const [what, larger, smaller, passes] of [
  ["`maxInInterval`", { maxInInterval: 5 }, { maxInInterval: 3 }, 3],
  ["`minDifference`", { maxInInterval: 50, minDifference: 10_000 }, { maxInInterval: 50 }, 0],
]) {
  test(`objects of another ${what} share the actions, as theirs do`, async (t) => {
    const move = moveClock(t, ["Date"]);
    const granted = [];
    for (const { RedisRateLimiter } of [theirs, own]) {
      const [one, other] = [larger, smaller].map((options) => new RedisRateLimiter({ client: io, namespace: `both-${passes}:`, interval: 1_000_000, ...options }));
      let passed = 0;
      for (let time = 0; time < 50; time++) {
        move(1_000);
        if (passes === 0) await other.limit("a");
        if (!(await one.limit("a"))) passed++;
        if (passes > 0) await other.limit("a");
      }
      granted.push(passed);
    }
    assert.deepEqual(granted, [passes, passes]);
  });
}

test("a key with its namespace, and the kind of a client", () => {
  for (const { RedisRateLimiter } of [theirs, own]) {
    assert.equal(new RedisRateLimiter({ client: io, namespace: "n:", interval: 1, maxInInterval: 1 }).makeKey(5), "n:5");
    assert.deepEqual([io, node, {}].map(RedisRateLimiter.determineRedisClientType), ["ioredis", "node-redis", null]);
  }
});

describe("misuse", () => {
  const options = { client: io, namespace: "n:", interval: 1_000, maxInInterval: 1 };
  for (const [name, given, message] of [
    ["no client", { client: undefined }, /^`client`: expected a client of `ioredis`/],
    ["no namespace", { namespace: undefined }, "`namespace`: expected a string, found undefined"],
  ]) test(name, () => assert.throws(() => new own.RedisRateLimiter({ ...options, ...given }), { code: "INVALID_OPTION", message }));
  test("an object in the place of an id", () => assert.rejects(new own.RedisRateLimiter(options).limit({}), { code: "INVALID_KEY" }));
});
