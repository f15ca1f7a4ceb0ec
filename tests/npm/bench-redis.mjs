// The limiter on Redis beside others through the same client, and the one at a server beside plain calls of `fetch`, in one run. Not a test: `cargo xtask bench npm-redis`.
//
// A row has the median of five runs of checks per second by 256 callers, and its ratio to its baseline.
import { Ratelimit } from "@upstash/ratelimit";
import { Redis } from "ioredis";
import { RateLimiterRedis } from "rate-limiter-flexible";
import { createClient } from "redis";

import { RedisLimiter } from "../../crates/wasm/npm/dist/node/redis.js";
import { RemoteLimiter } from "../../crates/wasm/npm/dist/remote.js";
import { startHost } from "./host.mjs";
import { startServer } from "./redis.mjs";

const RUNS = 5;
const CALLERS = 256;
const MS = 500;
const LIMIT = 1_000_000_000;
const WINDOW = { limits: [{ algorithm: "fixed_window", limit: LIMIT, period: "1h" }] };

const redis = await startServer();
const io = new Redis({ path: redis.path });
const node = await createClient({ socket: { path: redis.path } }).connect();
await io.ping();

const many = Array.from({ length: 10_000 }, (_, index) => `user:${index}`);
const hot = ["user:42"];
const flexible = new RateLimiterRedis({ storeClient: io, points: LIMIT, duration: 3_600 });
const upstash = new Ratelimit({
  redis: {
    evalsha: (hash, keys, words) => io.evalsha(hash, keys.length, ...keys, ...words),
    eval: (script, keys, words) => io.eval(script.replace(/^#!.*\n/, "\n"), keys.length, ...keys, ...words),
  },
  limiter: Ratelimit.fixedWindow(LIMIT, "1 h"), ephemeralCache: false,
});
const ours = { ioredis: new RedisLimiter(WINDOW, io), redis: new RedisLimiter(WINDOW, node, { prefix: "redis:" }) };
/** This process may hold so many units of a key for a second. */
const lent = new RedisLimiter({ ...WINDOW, local: { most: 100_000, time: "1s" } }, io, { prefix: "lent:" });
const consume = (key) => flexible.consume(key);
const limit = (key) => upstash.limit(key);
const check = async (limiter, key) => {
  const { degraded } = await limiter.check(key);
  if (degraded !== undefined) throw new Error(degraded);
};

for (const [what, keys, goal] of [["10,000 keys", many, 4], ["one hot key", hot, 10]]) {
  const theirs = await rate(`rate-limiter-flexible, RateLimiterRedis, ${what}`, keys, consume);
  const another = await rate(`@upstash/ratelimit by ioredis, ${what}`, keys, limit);
  for (const [client, limiter] of Object.entries(ours)) {
    await rate(`tidegate/redis by ${client}, ${what}`, keys, (key) => check(limiter, key), [theirs, goal], [another, goal]);
  }
  if (keys === hot) await rate(`tidegate/redis by ioredis, lent, ${what}`, keys, (key) => check(lent, key), [theirs, 30], [another, 30]);
}
const one = await alone("GET by ioredis, one caller, p50", () => io.get("user:42"));
await alone("tidegate/redis by ioredis, one caller, p50", () => check(ours.ioredis, "user:42"), [one, 1.3]);
await Promise.all([...Object.values(ours), lent].map((limiter) => limiter.close()));
io.disconnect();
node.destroy();
await redis.stop();
await atServer();

/** Both ask one host in memory. */
async function atServer() {
  const host = await startHost(`[policies.p]\nlimits = [{ algorithm = "fixed_window", limit = ${LIMIT}, period = "1h" }]`);
  const remote = new RemoteLimiter({ url: host.url, policy: "p", token: "secret" });
  const headers = { authorization: "Bearer secret", "content-type": "application/json" };
  const one = await rate("one fetch a check, 100 keys", many.slice(0, 100), async (key) => {
    const response = await fetch(`${host.url}/v1/check`, { method: "POST", headers, body: JSON.stringify({ policy: "p", key }) });
    const { allowed, degraded } = await response.json();
    if (!allowed || degraded !== undefined) throw new Error(degraded);
  });
  await rate("tidegate/remote, 100 keys", many.slice(0, 100), (key) => check(remote, key), [one, 5]);
  await remote.close();
  await host.stop();
}

/** Checks per second. */
async function rate(name, keys, call, ...baselines) {
  const rates = [];
  for (let run = 0; run < RUNS; run++) {
    const began = performance.now();
    let calls = 0;
    await Promise.all(Array.from({ length: CALLERS }, async () => {
      while (performance.now() - began < MS) await call(keys[calls++ % keys.length]);
    }));
    rates.push((calls * 1000) / (performance.now() - began));
  }
  return row(name, median(rates), "/s", ...baselines);
}

/** Microseconds of a call. */
async function alone(name, call, ...baselines) {
  for (let count = 0; count < 2_000; count++) await call(); // to compile it
  const times = [];
  for (let count = 0; count < 5_000; count++) {
    const began = performance.now();
    await call();
    times.push((performance.now() - began) * 1000);
  }
  return row(name, median(times), "µs", ...baselines);
}

function median(numbers) {
  return numbers.sort((one, other) => one - other)[numbers.length >> 1];
}

function row(name, value, unit, ...baselines) {
  const ratios = baselines.map(([of, goal]) => `${(value / of).toFixed(2)} (goal ${goal})`).join(", ");
  console.log(`${name.padEnd(58)} ${value.toFixed(0).padStart(8)} ${unit}  ${ratios}`);
  return value;
}
