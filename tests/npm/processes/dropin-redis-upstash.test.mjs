// @upstash/ratelimit and our class on one real redis-server under the same random calls, and where they differ.
import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { Ratelimit } from "@upstash/ratelimit";

import { compare, moveClock, ours, pick, START_MS } from "../dropin.mjs";
import { startClients } from "../dropin-redis.mjs";
import { callsOn, stepper, testSlidingWindows, withDynamicLimits } from "../dropin-upstash.mjs";
import { startRedis } from "../redis.mjs";

const { Ratelimit: Own, MultiRegionRatelimit } = await ours("upstash/redis");
const { client, path, stop } = await startRedis();
const { io, node } = await startClients(path);
after(stop);

const IDS = ["a", "b", "ip:not an address", "}"];
let prefixes = 0;

/** Both limiters, with the same options and a prefix of their own. */
function pair(make, options = {}, redis = client) {
  const prefix = `test-${prefixes++}`;
  const of = (type, redis) => new type({ redis, limiter: make(type), prefix, timeout: 0, ...options });
  return [of(Ratelimit, redis), of(Own, prefixes % 2 ? io : node)];
}

const calls = callsOn(IDS);

describe("fixedWindow, 4,000 calls", () => {
  for (const [place, options] of [{}, { ephemeralCache: false }].entries()) {
    test(JSON.stringify(options), async (t) => {
      const move = moveClock(t, ["Date"]);
      const limiters = pair((type) => type.fixedWindow(5, "30 s"), options);
      const seed = 900 + place;
      const counts = await compare({ seed, calls: 2_000, limiters, step: stepper(move, 30_000), call: calls([undefined, undefined, 1, 2, 7, 0]) });
      t.diagnostic(`seed ${seed}: ${JSON.stringify(counts)}`);
    });
  }
});

describe("tokenBucket, at multiples of the interval, 4,000 calls", () => {
  for (const [place, [refill, interval, most, options]] of [[5, "10 s", 10, {}], [3, "7s", 10, { ephemeralCache: false }]].entries()) {
    test(`${refill} each ${interval}, up to ${most}, ${JSON.stringify(options)}`, async (t) => {
      const move = moveClock(t, ["Date"]);
      const intervalMs = { "10 s": 10_000, "7s": 7_000 }[interval];
      move(intervalMs - (START_MS % intervalMs));
      const limiters = pair((type) => type.tokenBucket(refill, interval, most), options, client.expiring(intervalMs));
      const seed = 910 + place;
      // what theirs says is left is what was left at the last grant
      const skips = async ({ name, args: [id] }) => {
        const refilledAt = await client.send("HGET", `${limiters[0].prefix}:${id}`, "refilledAt");
        return name === "getRemaining" && refilledAt !== null && Number(refilledAt) !== Date.now();
      };
      const step = (random) => move(intervalMs * pick(random, [0, 0, 0, 0, 1, 2]));
      const counts = await compare({ seed, calls: 2_000, limiters, step, call: calls([undefined, 1, 2, 3, 4, 11]), skips });
      t.diagnostic(`seed ${seed}: ${JSON.stringify(counts)}`);
    });
  }
});

describe("slidingWindow, 6,000 calls", () => {
  // see "what differs"
  const skips = async (theirs, { name, args: [id, { rate = 1 } = {}] }) => {
    const { remaining } = await theirs.getRemaining(id);
    return name === "limit" && remaining > 0 && rate > remaining;
  };
  testSlidingWindows({ seed: 920, count: 2_000, pair, calls, client, skips });
});

describe("dynamicLimits, 2,000 calls", () => {
  for (const [place, [make, steps, limits]] of [
    [(type) => type.fixedWindow(5, "30 s"), [0, 0, 0, 1_777, 15_000, 30_000], [1, 3, 9, 40, false]],
    [(type) => type.slidingWindow(5, "30 s"), [0], [5, 8, 4, false]],
  ].entries()) {
    test(["fixedWindow", "slidingWindow, which takes what was used for used at the change"][place], async (t) => {
      const move = moveClock(t, ["Date"]);
      const limiters = pair(make, { dynamicLimits: true, ephemeralCache: false });
      const call = withDynamicLimits(limits, calls([1]));
      const step = (random) => move(pick(random, steps));
      const counts = await compare({ seed: 930 + place, calls: 1_000, limiters, step, call });
      t.diagnostic(JSON.stringify(counts));
    });
  }

  for (const [name, make, theirGrants, ourGrants] of [
    ["slidingWindow", (type, tokens) => type.slidingWindow(tokens, "30 d"), 16, 16],
    ["tokenBucket, which takes what was used for used", (type, tokens) => type.tokenBucket(1, "30 d", tokens), 10, 16],
  ]) {
    test(`two objects of one prefix with other tokens: ${name}`, async (t) => {
      moveClock(t, ["Date"]);
      const prefix = `beside-${prefixes++}`;
      const granted = [];
      for (const [type, redis] of [[Ratelimit, client], [Own, io]]) {
        const limiters = [20, 8].map((tokens) => new type({ redis, limiter: make(type, tokens), prefix, timeout: 0, dynamicLimits: true, ephemeralCache: false }));
        let passed = 0;
        for (let time = 0; time < 100; time++) for (const [place, limiter] of limiters.entries()) if ((await limiter.limit("a")).success && place === 0) passed++;
        granted.push(passed);
      }
      assert.deepEqual(granted, [theirGrants, ourGrants]);
    });
  }

  test("another process reads the limit, and a bucket keeps what was used", async () => {
    const make = (redis) => new Own({ redis, limiter: Own.tokenBucket(1, "1 h", 10), prefix: "dynamic", dynamicLimits: true });
    const [one, other] = [make(io), make(node)];
    assert.equal((await one.limit("a", { rate: 4 })).remaining, 6);
    await other.setDynamicLimit({ limit: 20 });
    assert.deepEqual(await one.getDynamicLimit(), { dynamicLimit: 20 });
    const { limit, remaining } = await one.limit("a");
    assert.deepEqual([limit, remaining], [20, 15]);
    await one.setDynamicLimit({ limit: false });
    assert.equal((await other.limit("a")).remaining, 4);
  });
});

test("two limiters share one count, and that of the library stays apart", async () => {
  for (const make of [(type) => type.fixedWindow(50, "30 d"), (type) => type.slidingWindow(50, "30 d"), (type) => type.tokenBucket(1, "30 d", 50)]) {
    const prefix = `shared-${prefixes++}`;
    const limiters = [[Own, io], [Own, node], [Ratelimit, client]].map(([type, redis]) =>
      new type({ redis, limiter: make(type), prefix, ephemeralCache: false, timeout: 0 }));
    const said = await Promise.all(Array.from({ length: 300 }, (_, place) => limiters[place % 3].limit("a")));
    const passed = (places) => said.filter(({ success }, place) => success && places.includes(place % 3)).length;
    assert.deepEqual([passed([0, 1]), passed([2])], [50, 50]);
  }
});

test("blockUntilReady waits for the next window", async () => {
  const own = new Own({ redis: io, limiter: Own.fixedWindow(1, "200 ms"), prefix: "ready" });
  for (let count = 0; count < 3; count++) assert.equal((await own.blockUntilReady("a", 5_000)).success, true);
});

describe("what differs", () => {
  test("a rate that does not fit into a sliding window counts nothing: theirs counts it", async () => {
    const left = [];
    for (const limiter of pair((type) => type.slidingWindow(5, "30 d"), { ephemeralCache: false })) {
      await limiter.limit("a", { rate: 3 });
      assert.equal((await limiter.limit("a", { rate: 4 })).success, false);
      left.push((await limiter.getRemaining("a")).remaining);
    }
    assert.deepEqual(left, [0, 2]);
  });

  test("a bucket fills at multiples of the interval: theirs from the first request on", async (t) => {
    moveClock(t, ["Date"]);
    const resets = [];
    for (const limiter of pair((type) => type.tokenBucket(1, "10 s", 5))) resets.push((await limiter.limit("a")).reset - START_MS);
    assert.deepEqual(resets, [10_000, 9_877]);
  });

  test("tokens that are given back fill each algorithm only up to its limit", async () => {
    for (const make of [(type) => type.fixedWindow(5, "30 d"), (type) => type.slidingWindow(5, "30 d"), (type) => type.tokenBucket(1, "30 d", 5)]) {
      const limiters = pair(make);
      const left = async (limiter) => (await limiter.limit("a", { rate: -3 })).remaining;
      assert.deepEqual(await Promise.all(limiters.map(left)), [8, 5]);
    }
  });

  test("several regions are refused with a reason", () => {
    const message = "`MultiRegionRatelimit` is not here, because regions that count apart grant more than the limit: use `Ratelimit` on the Redis of one region";
    assert.throws(() => new MultiRegionRatelimit({ redis: [io] }), { code: "INVALID_REQUEST", message });
    assert.throws(() => MultiRegionRatelimit.slidingWindow(5, "1 s"), { message: message.replace("MultiRegionRatelimit", "slidingWindow") });
  });
});

describe("misuse", () => {
  const limiter = Own.fixedWindow(5, "1h");
  for (const [name, make, message] of [
    ["no client", () => new Own({ limiter }), /^`redis`: expected a client of `ioredis`/],
    ["a timeout that is no number", () => new Own({ redis: io, limiter, timeout: "5" }), '`timeout`: expected a finite number, found "5"'],
    ["no tokens", () => new Own({ redis: io, limiter: Own.slidingWindow(0, "1h") }), /^`tokens`: expected a whole number from 1 to \d+ in such a window, found 0$/],
    ["a window too long for limits that change", () => new Own({ redis: io, limiter: Own.slidingWindow(5, "102 d"), dynamicLimits: true }), "`window`: expected at most 8796084633 ms with `dynamicLimits`, found 8812800000"],
    ["too many tokens for limits that change", () => new Own({ redis: io, limiter: Own.slidingWindow(2 ** 30, "101 d"), dynamicLimits: true }), "`tokens`: expected a whole number from 1 to 1056949 in such a window, found 1073741824"],
  ]) test(name, () => assert.throws(make, { code: "INVALID_OPTION", message }));

  test("an algorithm in memory", async () => {
    const { Ratelimit: Memory } = await ours("upstash");
    assert.throws(() => new Own({ redis: io, limiter: Memory.fixedWindow(5, "1h") }), { code: "INVALID_OPTION" });
  });

  test("an invalid limit, and a limit without `dynamicLimits`", async () => {
    const own = new Own({ redis: io, limiter, dynamicLimits: true });
    for (const limit of [0, 1.5, NaN, "5", undefined, 2 ** 21]) await assert.rejects(own.setDynamicLimit({ limit }), { code: "INVALID_OPTION" });
    const message = "`setDynamicLimit`: expected a limiter with `dynamicLimits: true`, found one without";
    await assert.rejects(new Own({ redis: io, limiter }).setDynamicLimit({ limit: 5 }), { code: "INVALID_REQUEST", message });
  });
});
