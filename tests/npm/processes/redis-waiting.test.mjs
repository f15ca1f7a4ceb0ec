// Requests that wait for their turn at a limiter on Redis. A client that the tests hold stands for Redis where the order of answers matters.
import assert from "node:assert/strict";
import { after, test } from "node:test";

import { Redis } from "ioredis";

import { load } from "../installed.mjs";
import { startServer } from "../redis.mjs";
import { assertOneAfterAnother, settled, waiting } from "../waiting.mjs";

const { RedisLimiter } = await load("tidegate/redis");
const redis = await startServer();
const client = new Redis({ path: redis.path });
after(async () => {
  client.disconnect();
  await redis.stop();
});

const HOUR = { limits: [{ algorithm: "fixed_window", limit: 1, period: "1h", start: "first" }] };
const JOBS = { limits: [{ algorithm: "concurrency", capacity: 1, time_to_live: "1h" }] };

/** A limiter whose names in Redis no other test uses, in each of two processes. */
let count = 0;
function two(policy) {
  const options = { prefix: `waiting-${count++}:`, deadline: "10s" };
  return [new RedisLimiter(policy, client, options), new RedisLimiter(policy, client, options)];
}

test("requests on a key are granted one after another, in their order, at the rate of the bucket", async () => {
  const [limiter] = two({ limits: [{ algorithm: "token_bucket", capacity: 1, rate: "20/s" }] });
  await assertOneAfterAnother(limiter);
});

test("what comes back in this process wakes the first that waits", async () => {
  for (const [name, wake] of Object.entries({
    refund: (limiter) => limiter.refund("a", 1), reset: (limiter) => limiter.reset("a"), grant: (limiter, grant) => grant.refund(),
    giveBack: (limiter, { atUs }) => limiter.giveBack("a", { headers: [], grant: { atUs, units: 1 } }),
  })) {
    const [limiter] = two(HOUR);
    const grant = await limiter.decide("a");
    const waited = limiter.waitFor("a");
    await waiting(limiter, 1);
    await wake(limiter, grant);
    assert.equal((await waited).allowed, true, name);
  }
  const [jobs] = two(JOBS);
  const first = await jobs.acquire("ip:2001:db8::1");
  const waited = jobs.waitFor("ip:2001:db8::2");
  await waiting(jobs, 1);
  await first.release();
  assert.match((await waited).lease, /^[0-9a-f]{32}$/);
});

test("what comes back in another process is seen after a second", async (t) => {
  const [own, other] = two(JOBS);
  const held = await other.acquire("a");
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const waited = own.waitFor("a", { jitter: 0 });
  await waiting(own, 1);
  await held.release();
  await settled();
  t.mock.timers.tick(1_000);
  assert.equal((await waited).allowed, true);
});

test("a request that cannot pass, or that is ended, is rejected", async () => {
  const [limiter] = two({ ...HOUR, deny: ["bad"] });
  await assert.rejects(limiter.waitFor("bad"), { name: "LimiterError", code: "NEVER_GRANTED" });
  await limiter.waitFor("a");
  const stop = new AbortController();
  const reason = new Error("enough");
  const waits = [limiter.waitFor("a", { signal: stop.signal }), limiter.waitFor("a")];
  await waiting(limiter, 2);
  await assert.rejects(limiter.waitFor("a", { cost: 2 }), { code: "COST_EXCEEDS_CAPACITY" }, "although others wait");
  await assert.rejects(limiter.waitFor("a", { signal: AbortSignal.abort(reason) }), reason);
  stop.abort(reason);
  await assert.rejects(waits[0], reason);
  await waiting(limiter, 1);
  await limiter.close();
  await assert.rejects(waits[1], { code: "FREED" });
  await assert.rejects(limiter.waitFor("a"), { code: "FREED" });
});

/** A client that answers when it is told to. */
function held() {
  const answers = [];
  return { answers, callBuffer: () => new Promise((resolve) => answers.push(resolve)) };
}

/** Answers the next command. */
async function answered({ answers }, reply) {
  while (answers.length === 0) await new Promise(setImmediate);
  answers.shift()(reply);
}

test("a grant that is under way when its caller leaves, or the limiter closes, is not lost", async () => {
  for (const end of [(limiter, stop) => stop.abort(), (limiter) => void limiter.close()]) {
    const client = held();
    const limiter = new RedisLimiter(HOUR, client, { deadline: "10s" });
    const stop = new AbortController();
    const first = limiter.waitFor("a");
    await answered(client, 0);
    assert.equal((await first).allowed, true);
    const waits = limiter.waitFor("a", { signal: stop.signal });
    await answered(client, 0);
    await waiting(limiter, 1);
    const reset = limiter.reset("a");
    await answered(client, 0);
    await reset;
    while (client.answers.length === 0) await new Promise(setImmediate); // the request asks again
    end(limiter, stop);
    await answered(client, 0);
    assert.equal((await waits).allowed, true);
  }
});

test("a request waits until Redis is back, and each second asks again", async (t) => {
  let [isAway, calls] = [true, 0];
  const client = {
    async callBuffer() {
      calls++;
      if (isAway) throw new Error("READONLY replica");
      return 0;
    },
  };
  const limiter = new RedisLimiter(HOUR, client, { deadline: "10s" });
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const waited = limiter.waitFor("a", { jitter: 0 });
  for (let asked = 1; asked <= 2; asked++) {
    while (calls < asked) await new Promise(setImmediate);
    await new Promise(setImmediate); // the answer has come
    if (asked === 1) t.mock.timers.tick(1_000);
  }
  isAway = false;
  t.mock.timers.tick(1_000);
  assert.equal((await waited).allowed, true);
});

test("an explanation of a Redis that is away has no words", async () => {
  const limiter = new RedisLimiter({ ...HOUR, allow: ["good"] }, { callBuffer: async () => { throw new Error("READONLY replica"); } });
  assert.deepEqual(await limiter.explain("a"), { allowed: false, degraded: "redis: READONLY replica" });
  assert.equal((await limiter.explain("good")).text, "The key is on the list `allow`, so its requests pass and are not counted.");
});

test("more requests wait on a key than Redis may be asked at once, and none passes beyond the limit", async () => {
  const limiter = new RedisLimiter({ ...HOUR, on_error: "open" }, client, { prefix: `waiting-${count++}:`, deadline: "10s" });
  const stop = new AbortController();
  const order = [];
  const waits = Array.from({ length: 9_000 }, async (_, place) => {
    try {
      const { degraded } = await limiter.waitFor("a", { signal: stop.signal });
      order.push([place, degraded]);
    } catch (error) {
      assert.equal(error.name, "AbortError");
    }
  });
  assert.equal(limiter.waiting, 9_000);
  while (order.length === 0) await new Promise(setImmediate);
  for (const next of [1, 2]) {
    await limiter.reset("a");
    while (order.length <= next) await new Promise(setImmediate);
  }
  await waiting(limiter, 8_997);
  stop.abort();
  await Promise.all(waits);
  assert.deepEqual(order, [[0, undefined], [1, undefined], [2, undefined]]);
});

test("a request that is not begun because too many wait at Redis keeps its place, whatever `on_error` says", async (t) => {
  let answer;
  const isAnswering = new Promise((resolve) => {
    answer = resolve;
  });
  const client = { callBuffer: async () => (await isAnswering, 0) };
  const limiter = new RedisLimiter({ ...HOUR, on_error: "open" }, client, { deadline: "10s" });
  const checks = Array.from({ length: 8_192 }, () => limiter.check("a"));
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const order = [];
  const waits = [0, 1].map(async (place) => {
    const { degraded } = await limiter.waitFor("a", { jitter: 0 });
    order.push([place, degraded]);
  });
  for (let turn = 0; turn < 5; turn++) await new Promise(setImmediate);
  assert.deepEqual(order, []);
  answer();
  assert.equal((await Promise.all(checks)).filter(({ allowed }) => allowed).length, 1);
  for (const next of waits) {
    await limiter.reset("a");
    await next;
  }
  assert.deepEqual(order, [[0, undefined], [1, undefined]]);
});
