// RateLimiterRedis of rate-limiter-flexible and ours on a real Redis under the same random calls, and where they differ.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { describe, test } from "node:test";
import theirs from "rate-limiter-flexible";

import { ours, outcome, pick, randomFrom } from "../dropin.mjs";
import { assertAlike, both, movable, passEnds, startClients } from "../dropin-redis.mjs";

const own = await ours("rate-limiter-flexible/redis");
const { io, node } = await startClients();
const KEYS = ["a", "b", 7, "ip:not an address", "}"];

let prefixes = 0;
/** Both limiters, each with a prefix of its own. */
function pair(options, client = io) {
  const place = prefixes++;
  const useRedisPackage = client === node;
  return [
    new theirs.RateLimiterRedis({ storeClient: client, useRedisPackage, ...options, keyPrefix: `their${place}` }),
    new own.RateLimiterRedis({ storeClient: client, ...options, keyPrefix: `own${place}` }),
  ];
}

/** A call that both answer alike, with arguments that its types allow. `count` are the points that a key has consumed. */
function callOf(random, { duration }, { key, count, isBlocked }) {
  const name = pick(random, ["consume", "consume", "consume", "consume", "penalty", "reward", "get", "get", "set", "block", "delete"]);
  const points = pick(random, [undefined, 1, 1, 2, 3, 7]);
  const seconds = pick(random, duration === 0 ? [1, 3, 0] : [1, Math.min(3, duration), duration]);
  switch (name) {
    case "reward": return isBlocked || count < 1 ? callOf(random, { duration }, { key, count, isBlocked }) : { name, args: [key, 1 + random(count)] };
    case "set": return { name, args: [key, pick(random, [0, 1, 5, 1000]), pick(random, [seconds, undefined])] };
    case "block": return { name, args: [key, pick(random, [1, 3, duration === 0 ? 0 : 50])] };
    case "get": case "delete": return { name, args: [key] };
    default: return { name, args: [key, points] };
  }
}

describe("RateLimiterRedis, 4,500 calls", () => {
  for (const [place, [client, config]] of [
    [io, { points: 5, duration: 4 }], [node, { points: 3, duration: 2, blockDuration: 5 }], [io, { points: 10, duration: 0 }],
    [io, { points: 4, duration: 3, blockDuration: 6, blockOnConsumed: 7 }], [io, { points: 3, duration: 9, inMemoryBlockOnConsumed: 5 }],
    [node, { points: 3, duration: 2, inMemoryBlockOnConsumed: 4, inMemoryBlockDuration: 3, blockDuration: 5 }],
  ].entries()) {
    test(`${client === io ? "ioredis" : "redis"}: ${JSON.stringify(config)}`, async (t) => {
      const limiters = pair(config, client);
      const [their] = limiters;
      const move = movable(t, io, `${their.keyPrefix}:*`);
      const [seed, random, blocked, counts] = [600 + place, randomFrom(600 + place), new Map(), {}];
      for (let call = 0; call < 750; call++) {
        const ms = pick(random, [0, 0, 1, 20, 333, 1500, 2000]);
        if (ms > 0) await move(ms);
        const key = pick(random, KEYS);
        const until = await passEnds(move, async () => Promise.all(limiters.flatMap((limiter) => [
          limiter.get(key).then((found) => found?.msBeforeNext ?? 0), limiter.getInMemoryBlockMsBeforeExpire(limiter.getKey(key)),
        ])));
        const state = await their.get(key);
        if (state === null) blocked.delete(String(key));
        const isBlocked = blocked.has(String(key));
        const { name, args } = callOf(random, config, { key, count: state?.consumedPoints ?? 0, isBlocked });
        counts[name] = (counts[name] ?? 0) + 1;
        const results = await both((limiter) => outcome(limiter[name](...args)), limiters, until);
        if (results === undefined) { // a window of one may have ended between the calls
          for (const limiter of limiters) await limiter.delete(key);
          blocked.delete(String(key));
          continue;
        }
        const message = `seed ${seed}, call ${call}: ${name}(${JSON.stringify(args)})`;
        const { expected, found } = results;
        const [[, before]] = [Object.entries(expected)[0]];
        if (isBlocked && name !== "set" && before?.consumedPoints !== undefined) {
          // the points of a blocked key stay those of the block
          delete before.consumedPoints;
          delete Object.values(found)[0].consumedPoints;
          for (const said of [before, Object.values(found)[0]]) delete said.isFirstInDuration;
        }
        assertAlike(results, ["msBeforeNext"], message);
        if (name === "block") blocked.set(String(key), true);
        if (name === "set" || name === "delete") blocked.delete(String(key));
        const consumed = expected.rejected?.consumedPoints;
        if (name === "consume" && config.blockDuration && consumed >= (config.blockOnConsumed ?? config.points + 1)) blocked.set(String(key), true);
      }
      t.diagnostic(`seed ${seed}: ${JSON.stringify(counts)}`);
    });
  }
});

test("execEvenly delays as theirs does", async (t) => {
  const delays = [];
  const limiters = pair({ points: 5, duration: 20_000, execEvenly: true, execEvenlyMinDelayMs: 1 });
  const real = globalThis.setTimeout;
  t.mock.method(globalThis, "setTimeout", (act, ms, ...rest) => real(act, ms > 1_000 ? (delays.push(ms), 0) : ms, ...rest));
  for (let count = 0; count < 3; count++) {
    const { slackMs } = await both((limiter) => limiter.consume("a"), limiters);
    const [theirs, ours] = delays.splice(0);
    if (count === 0) assert.equal(theirs ?? ours, undefined, "the first request is not delayed");
    else assert.ok(Math.abs(theirs - ours) <= slackMs, `${theirs} and ${ours}`);
  }
});

test("a key that is blocked in memory is refused without Redis, until all such keys are asked about again", async () => {
  const options = { points: 1, duration: 100, inMemoryBlockOnConsumed: 1 };
  for (const limiter of pair(options)) {
    const elsewhere = new limiter.constructor({ storeClient: io, ...options, keyPrefix: limiter.keyPrefix });
    await limiter.consume("a");
    await elsewhere.delete("a");
    await assert.rejects(limiter.consume("a"), (refused) => refused.msBeforeNext > 0);
    limiter.deleteInMemoryBlockedAll();
    assert.equal((await limiter.consume("a")).consumedPoints, 1);
  }
});

test("a limiter blocks at most 10,000 keys in memory, and then asks about the oldest one again", async () => {
  const options = { points: 1, duration: 10_000, inMemoryBlockOnConsumed: 1 };
  const [, limiter] = pair(options);
  const elsewhere = new own.RateLimiterRedis({ storeClient: io, ...options, keyPrefix: limiter.keyPrefix });
  for (let first = 0; first < 10_000; first += 200) await Promise.all(Array.from({ length: 200 }, (_, place) => limiter.consume(first + place)));
  await elsewhere.delete(0);
  await assert.rejects(limiter.consume(0), own.RateLimiterRes);
  await limiter.consume("one more");
  assert.equal((await limiter.consume(0)).consumedPoints, 1);
});

test("wrappers take a limiter in Redis", async () => {
  const [, limiter] = pair({ points: 2, duration: 100 });
  const [, burst] = pair({ points: 1, duration: 100 });
  const { RateLimiterUnion, RateLimiterQueue, RLWrapperBlackAndWhite, RLWrapperTimeouts, BurstyRateLimiter } = own;
  assert.equal((await new RateLimiterUnion(limiter, burst).consume("u"))[limiter.keyPrefix].remainingPoints, 1);
  assert.equal(await new RateLimiterQueue(limiter).removeTokens(1, "q"), 1);
  const bursty = new BurstyRateLimiter(limiter, burst);
  for (let count = 0; count < 3; count++) await bursty.consume("b");
  await assert.rejects(bursty.consume("b"), own.RateLimiterRes);
  await assert.rejects(new RLWrapperBlackAndWhite({ limiter, blackList: ["c"] }).consume("c"), own.RateLimiterRes);
  assert.equal((await new RLWrapperTimeouts({ limiter, timeoutMs: 600_000 }).consume("t")).remainingPoints, 1);
});

test("two limiters share what they count, and other processes' limiters of the library stay apart", async () => {
  const options = { points: 50, duration: 100, keyPrefix: "shared" };
  const [one, other] = [io, node].map((storeClient) => new own.RateLimiterRedis({ ...options, storeClient }));
  const their = new theirs.RateLimiterRedis({ ...options, storeClient: io });
  const passed = async (limiter) => (await outcome(limiter.consume("a"))).resolved === undefined ? 0 : 1;
  const all = await Promise.all(Array.from({ length: 300 }, (_, place) => passed([one, other, their][place % 3])));
  const of = (places) => all.filter((_, place) => places.includes(place % 3)).reduce((sum, each) => sum + each, 0);
  assert.deepEqual([of([0, 1]), of([2])], [50, 50]);
});

describe("what differs", () => {
  const [their, our] = pair({ points: 5, duration: 10 });

  test("nothing counts below zero: theirs does", async () => {
    for (const [limiter, consumed] of [[their, -3], [our, 0]]) assert.equal((await limiter.reward("below", 3)).consumedPoints, consumed);
  });

  test("all windows of a limiter are of one length", async () => {
    const error = (field, most, found) => ({ code: "INVALID_OPTION", message: new RegExp(`^\`${field}\`: expected .*${most}.*, found ${found}$`) });
    await assert.rejects(our.consume("a", 1, { customDuration: 5 }), error("customDuration", 10, 5));
    await assert.rejects(our.set("a", 1, 11), error("secDuration", 10, 11));
    await assert.rejects(our.set("a", 1, 0), error("secDuration", 10, "Infinity"));
    assert.throws(() => { our.duration = 11; }, error("duration", 10, 11));
    assert.equal((await our.consume("a", 1, { customDuration: 10 })).consumedPoints, 1);
  });

  test("a blocked key keeps the points of its block: theirs goes on counting", async () => {
    const consumed = [];
    for (const limiter of [their, our]) {
      await limiter.block("blocked", 50);
      await outcome(limiter.consume("blocked"));
      consumed.push((await limiter.get("blocked")).consumedPoints);
      await assert.rejects(limiter.consume("blocked"));
    }
    assert.deepEqual(consumed, [7, 6]);
  });

  test("a key that is blocked for ever stays blocked: the next points let theirs pass after a window", async () => {
    const ends = [];
    for (const limiter of [their, our]) {
      await limiter.block("for ever", 0);
      ends.push((await limiter.penalty("for ever")).msBeforeNext);
    }
    assert.deepEqual(ends, [10_000, -1]);
  });

  test("windows of part of a second last for it: theirs never end", async () => {
    const [one, other] = pair({ points: 5, duration: 0.5 });
    assert.equal((await one.consume("a")).msBeforeNext, -1);
    assert.equal((await other.consume("a")).msBeforeNext, 500);
  });

  test("a script of the caller is refused", () => {
    const message = /^`customIncrTtlLuaScript`: expected none, because Redis runs the script of this package/;
    assert.throws(() => new own.RateLimiterRedis({ storeClient: io, points: 1, duration: 1, customIncrTtlLuaScript: "return 1" }), { message });
  });
});

describe("misuse", () => {
  const make = (options) => () => new own.RateLimiterRedis({ storeClient: io, points: 5, duration: 10, ...options });
  for (const [name, call, message] of [
    ["no client", make({ storeClient: undefined }), /^`storeClient`: expected a client of `ioredis`/],
    ["a block in memory below the points", make({ inMemoryBlockOnConsumed: 4 }), "`inMemoryBlockOnConsumed`: expected at least the points, 5, found 4"],
    ["a block below the points", make({ blockOnConsumed: 4 }), "`blockOnConsumed`: expected at least the points, 5, found 4"],
    ["a duration of a block in memory alone", make({ inMemoryBlockDuration: 4 }), "`inMemoryBlockOnConsumed`: expected a number beside `inMemoryBlockDuration`, found undefined"],
  ]) test(name, () => assert.throws(call, { code: "INVALID_OPTION", message }));

  test("part of a point", () => assert.rejects(make({})().consume("a", 0.5), { code: "INVALID_OPTION" }));
});

test("the library takes our limiters once our base class inherits from its own", async () => {
  const make = () => new theirs.RateLimiterUnion(new own.RateLimiterMemory({ points: 2, duration: 60 }), new own.RateLimiterRedis({ storeClient: io, points: 1, duration: 60, keyPrefix: "adopted" }));
  assert.throws(make, { message: /RateLimiter/ });
  Object.setPrototypeOf(own.RateLimiterCompatibleAbstract.prototype, theirs.RateLimiterCompatibleAbstract.prototype);
  const { rlflx, adopted } = await make().consume("a");
  assert.deepEqual([rlflx.remainingPoints, adopted.remainingPoints], [1, 0]);
  const insuranceLimiter = new own.RateLimiterMemory({ points: 2, duration: 60 });
  const their = new theirs.RateLimiterRedis({ storeClient: { get: () => {}, defineCommand() {}, rlflxIncr: async () => { throw new Error("away"); } }, points: 5, duration: 60, insuranceLimiter });
  assert.equal((await their.consume("a")).remainingPoints, 1);
  assert.equal((await new theirs.RLWrapperTimeouts({ limiter: insuranceLimiter, timeoutMs: 5_000 }).consume("a")).remainingPoints, 0);
  Object.setPrototypeOf(own.RateLimiterRes.prototype, theirs.RateLimiterRes.prototype);
  await assert.rejects(their.consume("a"), theirs.RateLimiterRes);
});

test("long keys are told apart by their SHA-256", async () => {
  const limiter = new own.RateLimiterRedis({ storeClient: io, points: 1, duration: 60 });
  await limiter.consume("x".repeat(200));
  const digest = createHash("sha256").update(`rlflx:${"x".repeat(200)}`).digest("hex");
  assert.equal((await io.keys(`*#${digest}*`)).length, 1);
});
