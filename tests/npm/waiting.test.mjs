// Requests that wait for their turn. Time is a mock, so no test waits.
import assert from "node:assert/strict";
import { test } from "node:test";

import { load } from "./installed.mjs";

const { Limiter } = await load();

const START = 1_700_000_000_000;
const ONE_PER_SECOND = { limits: [{ algorithm: "token_bucket", capacity: 1, rate: "1/s" }] };

/** Mocks the clock and the timers. */
function mocked(t) {
  t.mock.timers.enable({ apis: ["Date", "setTimeout"], now: START });
  return t.mock.timers;
}

/** Lets the callbacks of promises run. */
const settled = () => new Promise((resolve) => setImmediate(resolve));

test("requests on a key are granted one after another, in their order", async (t) => {
  const timers = mocked(t);
  const limiter = new Limiter(ONE_PER_SECOND);
  const order = [];
  for (let place = 0; place < 4; place++) {
    limiter.waitFor("a", { jitter: 0 }).then((grant) => order.push([place, (grant.atUs / 1000 - START) / 1000]));
  }
  await settled();
  assert.deepEqual([order, limiter.waiting], [[[0, 0]], 3]);
  timers.tick(999);
  await settled();
  assert.equal(order.length, 1);
  for (let second = 1; second <= 3; second++) {
    timers.tick(second === 1 ? 1 : 1000);
    await settled();
  }
  assert.deepEqual([order, limiter.waiting], [[[0, 0], [1, 1], [2, 2], [3, 3]], 0]);
});

test("a cheap request does not overtake an expensive one, and other keys do not wait", async (t) => {
  const timers = mocked(t);
  const limiter = new Limiter({ limits: [{ algorithm: "token_bucket", capacity: 4, rate: "1/s" }] });
  limiter.check("a", { cost: 3 });
  const order = [];
  for (const cost of [4, 1]) limiter.waitFor("a", { cost, jitter: 0 }).then(() => order.push(cost));
  await limiter.waitFor("b");
  assert.deepEqual(order, []);
  timers.tick(3000);
  await settled();
  assert.deepEqual(order, [4]);
  timers.tick(1000);
  await settled();
  assert.deepEqual(order, [4, 1]);
});

test("jitter only delays, by at most its share of the wait", async (t) => {
  const timers = mocked(t);
  t.mock.method(Math, "random", () => 0.999);
  const limiter = new Limiter(ONE_PER_SECOND);
  limiter.check("a");
  let granted = false;
  limiter.waitFor("a", { jitter: 0.5 }).then(() => { granted = true; });
  await settled();
  timers.tick(1498);
  await settled();
  assert.equal(granted, false);
  timers.tick(1);
  await settled();
  assert.equal(granted, true);
});

test("at a capacity of 1 the rate is reached, however late the timers are", async (t) => {
  const LATE = [0, 3, 7, 19, 1, 12, 5, 0, 15, 8];
  const START_US = START * 1000;
  const timers = mocked(t);
  const limiter = new Limiter({ limits: [{ algorithm: "token_bucket", capacity: 1, rate: "50/s" }] });
  const granted = [];
  for (let place = 0; place <= 100; place++) limiter.waitFor("a", { jitter: 0 }).then(({ atUs }) => granted.push([atUs - START_US, Date.now() - START]));
  await settled();
  for (let place = 1; place <= 100; place++) {
    t.mock.timers.setTime(START + place * 20 - 1);
    await settled();
    const late = LATE[place % LATE.length];
    t.mock.method(Date, "now", () => START + place * 20 + late);
    timers.tick(1);
    await settled();
    Date.now.mock.restore();
  }
  assert.deepEqual(granted.map(([at]) => at), Array.from({ length: 101 }, (_, place) => place * 20_000));
  for (const [place, [, at]] of granted.entries()) assert.ok(at >= place * 20 && at < place * 20 + 20, `${place}: ${at}`);
});

test("at a capacity of 1 the rate is reached with the default jitter", async (t) => {
  const timers = mocked(t);
  const limiter = new Limiter({ limits: [{ algorithm: "token_bucket", capacity: 1, rate: "50/s" }] });
  const granted = [];
  for (let place = 0; place <= 100; place++) limiter.waitFor("a").then(({ atUs }) => granted.push([atUs - START * 1000, Date.now() - START]));
  await settled();
  for (let ms = 0; ms < 2_003; ms++) {
    timers.tick(1);
    await settled();
  }
  assert.equal(granted.length, 101, "50 a second for 2 s, and the first one");
  for (const [place, [at, seenMs]] of granted.entries()) assert.ok(at === place * 20_000 && seenMs <= place * 20 + 3, `${place}: ${at} us, seen at ${seenMs} ms`);
});

test("a timer that is very late grants nothing that the time before has lost", async (t) => {
  const timers = mocked(t);
  const limiter = new Limiter({ limits: [{ algorithm: "token_bucket", capacity: 1, rate: "1/s" }] });
  const granted = [];
  for (let place = 0; place < 4; place++) limiter.waitFor("a", { jitter: 0 }).then(({ atUs }) => granted.push(atUs / 1000 - START));
  await settled();
  t.mock.method(Date, "now", () => START + 5_000);
  timers.tick(1_000);
  Date.now.mock.restore();
  await settled();
  assert.deepEqual(granted, [0, 5_000]);
});

test("a request that cannot pass, or one too many, is rejected at once", async () => {
  const limiter = new Limiter({ ...ONE_PER_SECOND, deny: ["bad"] }, { maxWaiters: 2 });
  await assert.rejects(limiter.waitFor("bad"), { name: "LimiterError", code: "NEVER_GRANTED" });
  const stop = new AbortController();
  limiter.block("blocked", `${Number.MAX_SAFE_INTEGER}us`);
  const blocked = limiter.waitFor("blocked", { signal: stop.signal }); // a reset may end the block
  stop.abort();
  await assert.rejects(blocked, { name: "AbortError" });
  await assert.rejects(limiter.waitFor("a", { cost: 2 }), { code: "COST_EXCEEDS_CAPACITY" });
  const behind = new Limiter(ONE_PER_SECOND);
  behind.check("a");
  const waits = behind.waitFor("a");
  await assert.rejects(behind.waitFor("a", { cost: 2 }), { code: "COST_EXCEEDS_CAPACITY" }, "although another one waits");
  assert.equal(behind.waiting, 1);
  behind.reset("a");
  await waits;
  for (const [options, code] of [
    [{ cost: 0 }, "INVALID_COST"], [{ now: 5 }, "INVALID_REQUEST"], [{ signal: {} }, "INVALID_REQUEST"],
    [{ jitter: 2 }, "INVALID_REQUEST"], [5, "INVALID_REQUEST"],
  ]) {
    await assert.rejects(limiter.waitFor("a", options), { name: "ArgumentError", code });
  }
  await assert.rejects(limiter.waitFor(5), { code: "INVALID_KEY" });
  const reason = new Error("aborted before");
  await assert.rejects(limiter.waitFor("a", { signal: AbortSignal.abort(reason) }), reason);
  await limiter.waitFor("a");
  const waiting = [limiter.waitFor("a"), limiter.waitFor("b").then(() => limiter.waitFor("b"))];
  await settled();
  await assert.rejects(limiter.waitFor("a"), { name: "FullError", code: "TOO_MANY_WAITERS" });
  limiter.free();
  for (const wait of waiting) await assert.rejects(wait, { name: "LimiterError", code: "FREED" });
  await assert.rejects(limiter.waitFor("a"), { code: "FREED" });
});

test("ten thousand requests wait and are aborted, without a timer left", async (t) => {
  const timers = mocked(t);
  const limiter = new Limiter(ONE_PER_SECOND);
  const controllers = Array.from({ length: 10_000 }, () => new AbortController());
  const outcomes = { granted: [], aborted: 0 };
  limiter.check("a");
  controllers.forEach(({ signal }, place) => {
    limiter.waitFor("a", { signal, jitter: 0 }).then(
      () => outcomes.granted.push(place), (error) => { if (error.name === "AbortError") outcomes.aborted++; },
    );
  });
  assert.equal(limiter.waiting, 10_000);
  await assert.rejects(limiter.waitFor("a"), { code: "TOO_MANY_WAITERS" });
  const kept = [3, 5_000, 9_999];
  controllers.forEach((controller, place) => { if (!kept.includes(place)) controller.abort(); });
  await settled();
  assert.deepEqual([outcomes.aborted, limiter.waiting], [9_997, 3]);
  for (let second = 0; second < 3; second++) {
    timers.tick(1000);
    await settled();
  }
  assert.deepEqual([outcomes.granted, limiter.waiting], [kept, 0]);
  for (const place of kept) controllers[place].abort();
  await settled();
  assert.equal(outcomes.aborted, 9_997, "an abort after the grant does nothing");
});

test("requests share one listener per signal, which goes with the last of them", async () => {
  const limiter = new Limiter(ONE_PER_SECOND);
  const controllers = [new AbortController(), new AbortController()];
  const listening = controllers.map(({ signal }) => {
    const listeners = new Set();
    for (const [name, change] of [["addEventListener", "add"], ["removeEventListener", "delete"]]) {
      const own = signal[name];
      signal[name] = (type, listener) => { listeners[change](listener); own.call(signal, type, listener); };
    }
    return listeners;
  });
  limiter.check("a");
  limiter.check("b");
  const waits = ["a", "a", "b", "b", "c"].flatMap((key) => controllers.map(({ signal }) => limiter.waitFor(key, { signal })));
  await settled();
  assert.deepEqual(listening.map(({ size }) => size), [1, 1]);
  controllers[0].abort(new Error("enough"));
  const outcomes = await Promise.allSettled(waits.filter((_, place) => place % 2 === 0));
  assert.deepEqual(outcomes.map(({ reason }) => reason?.message), ["enough", "enough", "enough", "enough", undefined]);
  assert.deepEqual([...listening.map(({ size }) => size), limiter.waiting], [0, 1, 5]);
  for (let request = 0; request < 5; request++) ["a", "b", "c"].forEach((key) => limiter.reset(key));
  await Promise.all(waits.filter((_, place) => place % 2 === 1));
  assert.deepEqual([...listening.map(({ size }) => size), limiter.waiting], [0, 0, 0]);
});

test("a signal that throws harms no other request", async () => {
  const limiter = new Limiter(ONE_PER_SECOND);
  const throwing = (name) => {
    const controller = new AbortController();
    controller.signal[name] = () => { throw new Error(`no ${name}`); };
    return controller;
  };
  limiter.check("a");
  const bad = throwing("removeEventListener");
  await assert.rejects(limiter.waitFor("a", { signal: throwing("addEventListener").signal }), { message: "no addEventListener" });
  assert.equal(limiter.waiting, 0);
  const waits = [limiter.waitFor("a", { signal: bad.signal }), limiter.waitFor("a"), limiter.waitFor("a")];
  limiter.reset("a");
  assert.equal((await waits[0]).allowed, true);
  limiter.free();
  for (const wait of waits.slice(1)) await assert.rejects(wait, { code: "FREED" });
  bad.abort();
});

test("a release wakes a request on the same key in other words", async () => {
  const jobs = new Limiter({ limits: [{ algorithm: "concurrency", capacity: 1, time_to_live: "1h" }] });
  for (const [held, waits] of [["ip:2001:db8::1", "ip:2001:db8::2"], ["ip:2001:db8::1", "ip:2001:0db8:0::1"], ["ip:192.0.2.1", "ip:::ffff:192.0.2.1"]]) {
    const lease = jobs.acquire(held);
    const waiting = jobs.waitFor(waits);
    lease.release();
    (await waiting).release();
  }
});

test("units that come back, a release, a reset and an update wake the first that waits", async () => {
  const bucket = { limits: [{ algorithm: "fixed_window", limit: 1, period: "1h" }] };
  for (const [name, wake] of Object.entries({
    refund: (limiter) => limiter.refund("a", 1), reset: (limiter) => limiter.reset("a"), resetAll: (limiter) => limiter.resetAll(),
    set: (limiter) => limiter.set("a", 0), update: (limiter) => limiter.update({ limits: [{ ...bucket.limits[0], limit: 2 }] }),
    restore: (limiter) => limiter.restore(new Limiter(bucket).dump()), grant: (limiter, grant) => grant.refund(),
  })) {
    const limiter = new Limiter(bucket);
    const grant = limiter.decide("a");
    const waited = limiter.waitFor("a");
    wake(limiter, grant);
    assert.equal((await waited).allowed, true, name);
    assert.equal(limiter.waiting, 0);
    limiter.free();
  }
  const jobs = new Limiter({ limits: [{ algorithm: "concurrency", capacity: 1, time_to_live: "1h" }] });
  const first = jobs.acquire("a");
  const waited = jobs.waitFor("a");
  first.release();
  const second = await waited;
  assert.match(second.lease, /^[0-9a-f]{32}$/);
  assert.deepEqual([jobs.peek("a").remaining, second.release(), jobs.peek("a").remaining], [0, true, 1]);
});

test("a callback may call the limiter while requests wait", async (t) => {
  const timers = mocked(t);
  const limiter = new Limiter(ONE_PER_SECOND);
  limiter.check("a");
  const controller = new AbortController();
  const waits = [0, 1, 2].map(() => limiter.waitFor("a", { signal: controller.signal, jitter: 0 }));
  controller.signal.addEventListener("abort", () => limiter.reset("a"));
  controller.abort(new Error("enough"));
  const outcomes = await Promise.allSettled(waits);
  assert.deepEqual(outcomes.map(({ reason }) => reason?.message), ["enough", "enough", "enough"]);
  assert.equal(limiter.waiting, 0);
  timers.tick(60_000);
  assert.equal(limiter.size <= 1, true);
});
