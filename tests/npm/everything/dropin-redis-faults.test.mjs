// The drop-in classes on a Redis that stops, dies or gives impossible replies.
import assert from "node:assert/strict";
import { once } from "node:events";
import { after, describe, test } from "node:test";
import { Ratelimit as TheirRatelimit } from "@upstash/ratelimit";
import { Redis } from "ioredis";
import theirs from "rate-limiter-flexible";
import { createClient } from "redis";

import { ours, outcome } from "../dropin.mjs";
import { waitForRedis } from "../dropin-redis.mjs";
import { load } from "../installed.mjs";
import { startServer } from "../redis.mjs";
import { until } from "../waiting.mjs";

const flexible = await ours("rate-limiter-flexible/redis");
const { RedisStore } = await ours("express-rate-limit/redis");
const { RedisRateLimiter } = await ours("rolling-rate-limiter/redis");
const { Ratelimit } = await ours("upstash/redis");
const { RedisLimiter } = await load("tidegate/redis");

const unhandled = [];
process.on("unhandledRejection", (error) => unhandled.push(error));
after(() => assert.deepEqual(unhandled, []));

/** Both clients of one Redis, and how they end. */
const CLIENTS = {
  ioredis: async (path) => {
    const client = new Redis({ path, retryStrategy: () => 20, maxRetriesPerRequest: 1 }).on("error", () => {});
    return { client, end: () => client.disconnect() };
  },
  redis: async (path) => {
    const client = createClient({ socket: { path, reconnectStrategy: () => 20 } }).on("error", () => {});
    await client.connect();
    return { client, end: () => client.destroy() };
  },
};

/** A call of each class. A result that was granted says so. */
const callsOf = (client) => {
  const store = new RedisStore({ client });
  store.init({ windowMs: 60_000 });
  const limiter = new flexible.RateLimiterRedis({ storeClient: client, points: 5, duration: 60 });
  const options = { redis: client, timeout: 0, ephemeralCache: false };
  const rolling = new RedisRateLimiter({ client, namespace: "n:", interval: 60_000, maxInInterval: 5, minDifference: 1 });
  const upstash = [Ratelimit.fixedWindow(5, "30 d"), Ratelimit.slidingWindow(5, "30 d"), Ratelimit.tokenBucket(5, "1 h", 5)]
    .map((algorithm) => new Ratelimit({ ...options, limiter: algorithm, dynamicLimits: true }));
  return [
    () => limiter.consume("a"), () => limiter.penalty("a"), () => limiter.reward("a"), () => limiter.get("a"), () => limiter.set("a", 1, 5),
    () => limiter.block("a", 5), () => limiter.delete("a"), () => store.increment("a"), () => store.decrement("a"), () => store.get("a"),
    () => store.resetKey("a"), () => rolling.limit("a"), () => rolling.wouldLimitWithInfo("a"), () => rolling.clear("a"),
    ...upstash.flatMap((each) => [() => each.limit("a"), () => each.getRemaining("a"), () => each.resetUsedTokens("a"), () => each.setDynamicLimit({ limit: 7 })]),
  ];
};

for (const [name, connected] of Object.entries(CLIENTS)) {
  test(`${name}: Redis dies, the insurance answers, and Redis counts again once it is back`, async (t) => {
    const first = await startServer();
    t.after(first.stop);
    const { client, end } = await connected(first.path);
    t.after(end);
    const insurance = (types) => new types.RateLimiterMemory({ points: 2, duration: 60, keyPrefix: "insurance" });
    const made = [theirs, flexible].map((types) => new types.RateLimiterRedis({
      storeClient: client, useRedisPackage: name === "redis", points: 5, duration: 60, keyPrefix: types === theirs ? "their" : "own", insuranceLimiter: insurance(types),
    }));
    const endWaiting = waitForRedis();
    t.after(endWaiting);
    for (const limiter of made) assert.equal((await limiter.consume("a")).remainingPoints, 4);
    endWaiting();
    first.server.kill("SIGKILL");
    await once(first.server, "exit");
    const [, own] = made;
    const steps = [["consume", "a"], ["consume", "a"], ["consume", "a"], ["penalty", "b", 2], ["reward", "b"], ["get", "b"], ["set", "c", 1, 60], ["get", "c"], ["block", "d", 60], ["consume", "d"], ["delete", "d"]];
    // node-redis keeps theirs waiting for a connection
    const asked = name === "redis" ? [own] : made;
    const ends = [];
    for (const limiter of [insurance(flexible), ...asked]) {
      const found = [];
      for (const [method, ...args] of steps) found.push(await outcome(limiter[method](...args)));
      for (const result of found.flatMap(Object.values)) delete result?.msBeforeNext;
      ends.push(found);
    }
    for (const found of ends) assert.deepEqual(found, ends[0]);
    const bare = new flexible.RateLimiterRedis({ storeClient: client, points: 5, duration: 60 });
    await assert.rejects(bare.consume("a"), { name: "LimiterError", code: "UNAVAILABLE" });
    for (const call of callsOf(client)) await assert.rejects(call(), { code: "UNAVAILABLE" });
    const second = await startServer(first.path);
    t.after(second.stop);
    await until(async () => (await outcome(bare.consume("back"))).resolved !== undefined);
    t.after(waitForRedis());
    assert.equal((await own.consume("again")).remainingPoints, 4);
  });
}

test("Redis hangs: a request of Upstash passes after the timeout as with theirs, and a wrapper's insurance answers within its own", async (t) => {
  const redis = await startServer();
  t.after(redis.stop);
  const { client, end } = await CLIENTS.ioredis(redis.path);
  t.after(end);
  await client.ping();
  redis.server.kill("SIGSTOP");
  const hangs = { evalsha: () => new Promise(() => {}) };
  const make = (type, given) => new type({ redis: given, limiter: type.fixedWindow(0, "1 h"), timeout: 50 });
  const [their, own] = await Promise.all([make(TheirRatelimit, hangs), make(Ratelimit, client)].map((each) => outcome(each.limit("a"))));
  assert.deepEqual(own, their);
  assert.equal(own.resolved.reason, "timeout");
  const hanging = make(Ratelimit, client);
  for (let count = 0; count < 6; count++) assert.equal((await hanging.limit("a")).reason, "timeout", "also after the deadline of Redis");
  const insuranceLimiter = new flexible.RateLimiterMemory({ points: 7, duration: 60 });
  const limiter = new flexible.RateLimiterRedis({ storeClient: client, points: 5, duration: 60, insuranceLimiter });
  assert.equal((await new flexible.RLWrapperTimeouts({ limiter, timeoutMs: 20 }).consume("a")).remainingPoints, 6);
  redis.server.kill("SIGCONT");
  await until(async () => (await outcome(hanging.limit("a"))).resolved?.success === false);
  client.disconnect();
  await assert.rejects(hanging.limit("b"), { code: "UNAVAILABLE" }, "Redis has answered since, so a failure is an error again");
});

describe("a reply that Redis never gives is an error, and nothing is granted", () => {
  const foreign = Buffer.from("03ffffffffffffffff", "hex");
  for (const [name, reply] of Object.entries({
    "nothing": null, "a text": Buffer.from("OK"), "another number": 5, "an empty list": [], "too long a list": [0, 0, 0, 0, 0],
    "half a list": [[]], "a state of another version": [[Buffer.from([9, 9, 9])]], "a foreign state": [[foreign]], "a map": new Map([[1, 2]]), "an error in a list": [new Error("ERR x")],
  })) {
    test(name, async () => {
      const client = { callBuffer: async () => structuredClone(reply) };
      const ends = await Promise.all(callsOf(client).map((call) => outcome(call())));
      for (const [place, { rejected, resolved }] of ends.entries()) {
        assert.ok(rejected?.error !== undefined, `call ${place}: ${JSON.stringify({ rejected, resolved })}`);
      }
    });
  }
});

test("what others put on Object.prototype decides nothing", async (t) => {
  const redis = await startServer();
  t.after(redis.stop);
  const { client, end } = await CLIENTS.ioredis(redis.path);
  t.after(end);
  t.after(waitForRedis());
  const jobs = { limits: [{ algorithm: "concurrency", capacity: 9, time_to_live: "1h" }], deny: ["denied"] };
  const api = { limits: [{ algorithm: "fixed_window", limit: 9, period: "36500d" }], reservations: {} };
  /** The ends of calls of each class, without what depends on the time. */
  const ends = async (prefix) => {
    const [held, counted] = [jobs, api].map((policy, place) => new RedisLimiter({ policies: { [`p${place}`]: policy } }, client, { prefix, deadline: "10s" }));
    const [grant, taken] = [await held.acquire("a", { lease: "l" }), await counted.decide("a", { cost: 2 })];
    const calls = [
      ...callsOf(client), () => counted.check("b"), () => counted.reserve("b", { id: "i", cost: 2 }), () => counted.commit("b", "i", 1),
      () => counted.block("c", "1h"), () => counted.reset("c"), () => counted.waitFor("d"), () => taken.refund(), () => taken.renew(),
      () => held.run("a", (signal) => signal.aborted), () => grant.renew(), () => grant.release(), () => held.waitFor("denied"),
    ];
    const found = [];
    for (const call of calls) found.push(await outcome(call()));
    await Promise.all([held.close(), counted.close()]);
    const TIMES = ["resetTime", "reset", "msBeforeNext", "millisecondsUntilAllowed", "atUs", "retryAfterUs", "resetAfterUs", "expiresAtUs", "limits", "lease", "pending", "blocked", "blockedDueToMinDifference"];
    return found.map((each) => Object.entries(each).map(([how, result]) => (
      typeof result === "object" && result !== null ? [how, Object.entries(result).filter(([name]) => !TIMES.includes(name))] : [how, result])));
  };
  const expected = await ends("clean:");
  await client.flushall();
  const foreign = { degraded: "foreign", reason: "foreign", denied: true, allowed: true, wouldAllow: false, live: true, lease: "foreign", id: "foreign" };
  for (const [name, value] of Object.entries(foreign)) {
    Object.defineProperty(Object.prototype, name, { value, configurable: true, writable: true, enumerable: false });
  }
  let found;
  try {
    found = await ends("foreign:");
  } finally {
    for (const name of Object.keys(foreign)) delete Object.prototype[name];
  }
  assert.deepEqual(found, expected);
  assert.ok(expected.flat(2).filter((how) => how === "rejected").length <= 2, JSON.stringify(expected));
});
