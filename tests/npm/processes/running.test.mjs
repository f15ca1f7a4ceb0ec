// Functions that run while a lease is held. Time is a mock, so no test waits.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";

import { Redis } from "ioredis";

import { startHost } from "../host.mjs";
import { load, project } from "../installed.mjs";
import { startServer } from "../redis.mjs";
import { until } from "../waiting.mjs";

const folder = project();
const { Limiter } = await load();
const { RedisLimiter } = await load("tidegate/redis");
const { RemoteLimiter } = await load("tidegate/remote");

const redis = await startServer();
const client = new Redis({ path: redis.path });
after(async () => {
  client.disconnect();
  await redis.stop();
});

const START = 1_700_000_000_000;
const places = { algorithm: "concurrency", capacity: 1, time_to_live: "30s" };
const JOBS = { limits: [places] };

const host = await startHost(`
[policies.jobs]
limits = [{ algorithm = "concurrency", capacity = 1, time_to_live = "30s" }]
[policies.long]
limits = [{ algorithm = "concurrency", capacity = 1, time_to_live = "1h" }]
[policies.shadow]
shadow = true
allow = ["free"]
deny = ["denied"]
limits = [{ algorithm = "concurrency", capacity = 1, time_to_live = "1h" }]
[policies.window]
limits = [{ algorithm = "fixed_window", limit = 5, period = "1h" }]
`);
after(() => host.stop());
/** The server has a clock of its own. */
const remote = (policy, options) => new RemoteLimiter({ url: host.url, policy, token: "secret", deadline: "30s", ...options });

/** Mocks the clock and the timers. */
function mocked(t) {
  t.mock.timers.enable({ apis: ["Date", "setTimeout"], now: START });
  return t.mock.timers;
}

/** Lets the callbacks of promises run. */
const settled = () => new Promise((resolve) => setImmediate(resolve));

/** A function for `run` that ends when it is told to, and what it has seen. */
function job() {
  const seen = { signal: undefined };
  const ended = new Promise((end) => Object.assign(seen, { end }));
  return { seen, fn: (signal) => Object.assign(seen, { signal }) && ended };
}

let prefixes = 0;
const LIMITERS = {
  "in memory": (policy) => new Limiter(policy),
  "on Redis": (policy) => new RedisLimiter(policy, client, { prefix: `running-${prefixes++}:`, deadline: "30s" }),
};

for (const [where, of] of Object.entries(LIMITERS)) {
  test(`${where}: the lease is held while the function runs, and then released`, async (t) => {
    mocked(t);
    const jobs = of(JOBS);
    const { seen, fn } = job();
    const running = jobs.run("a", fn);
    await until(() => seen.signal);
    const refused = await jobs.run("a", () => assert.fail("it was refused"));
    assert.deepEqual([refused.allowed, refused.retryAfterUs, "value" in refused], [false, 30_000_000, false]);
    seen.end("done");
    const { allowed, value } = await running;
    assert.deepEqual([allowed, value, seen.signal.aborted], [true, "done", false]);
    assert.equal((await jobs.run("a", () => 5)).value, 5, "a function need not be async");
    await assert.rejects(jobs.run("a", () => { throw new RangeError("its own"); }), { name: "RangeError", message: "its own" });
    await assert.rejects(jobs.run("a", async () => { throw new RangeError("its own"); }), { name: "RangeError" });
    assert.equal((await jobs.acquire("a")).allowed, true);
  });

  test(`${where}: the lease is renewed for as long as the function runs`, async (t) => {
    const timers = mocked(t);
    const jobs = of({ limits: [{ algorithm: "fixed_window", limit: 9, period: "30d" }, places] });
    const { seen, fn } = job();
    const running = jobs.run("a", fn);
    await until(() => seen.signal);
    for (let tens = 1; tens <= 12; tens++) {
      timers.tick(10_000);
      // the next turn comes after the renewal
      await until(async () => (await jobs.peek("a")).resetAfterUs > 29_000_000);
      assert.equal((await jobs.peek("a", { cost: 1 })).limits[1].allowed, false);
    }
    seen.end();
    await running;
    assert.equal(seen.signal.aborted, false);
    assert.equal((await jobs.acquire("a")).allowed, true);
  });

  test(`${where}: the signal tells that the lease is lost`, async (t) => {
    const timers = mocked(t);
    const jobs = of(JOBS);
    const { seen, fn } = job();
    const running = jobs.run("a", fn, { lease: "mine" });
    await until(() => seen.signal);
    await jobs.release("a", "mine");
    assert.equal((await jobs.acquire("a", { lease: "another's" })).allowed, true);
    timers.tick(10_000);
    await until(() => seen.signal.aborted);
    assert.deepEqual([seen.signal.reason.name, seen.signal.reason.code], ["LimiterError", "LEASE_LOST"]);
    seen.end("too late");
    assert.equal((await running).value, "too late");
    assert.equal((await jobs.renew("a", "another's")).live, true);
  });

  test(`${where}: a function that runs without a lease loses none`, async (t) => {
    const timers = mocked(t);
    const jobs = of({ ...JOBS, shadow: true, allow: ["free"], deny: ["denied"] });
    assert.equal((await jobs.acquire("a")).allowed, true);
    const [inShadow, free] = [job(), job()];
    const running = [jobs.run("a", inShadow.fn), jobs.run("free", free.fn)];
    await until(() => inShadow.seen.signal && free.seen.signal);
    for (let tens = 1; tens <= 5; tens++) {
      timers.tick(10_000);
      await jobs.peek("a");
      await settled();
    }
    for (const { seen } of [inShadow, free]) {
      assert.equal(seen.signal.aborted, false);
      seen.end("ran");
    }
    for (const each of running) assert.equal((await each).value, "ran");
    const denied = await of({ ...JOBS, deny: ["denied"] }).run("denied", () => assert.fail("it was denied"));
    assert.deepEqual([denied.allowed, denied.denied], [false, true]);
  });

  test(`${where}: a call that makes no sense takes nothing`, async () => {
    const jobs = of(JOBS);
    const fn = () => assert.fail("it must not be called");
    for (const [given, message] of [
      [["a"], "`fn`: expected a function, found undefined"],
      [["a", "fn"], "`fn`: expected a function, found a string"],
      [["a", fn, { now: 5 }], /^`request`: expected .*, found `now`$/],
      [["a", fn, { cost: 0 }], /^`cost`: expected a whole number from 1 /],
      [["a", fn, 5], "`request`: expected an object, found a number"],
      [[5, fn], "`key`: expected a string, found a number"],
    ]) {
      await assert.rejects(jobs.run(...given), { name: "ArgumentError", message });
    }
    assert.equal((await jobs.acquire("a")).allowed, true);
    const window = of({ limits: [{ algorithm: "fixed_window", limit: 5, period: "1h" }] });
    await assert.rejects(window.run("a", fn), { name: "ArgumentError", code: "INVALID_REQUEST", message: /lease/ });
    assert.equal((await window.peek("a")).remaining, 5);
  });
}

test("a limiter that is freed meanwhile loses the lease when its time to live has passed", async (t) => {
  const timers = mocked(t);
  const jobs = new Limiter(JOBS);
  const { seen, fn } = job();
  const running = jobs.run("a", fn);
  await settled();
  jobs.free();
  for (const [seconds, aborted] of [[10, false], [19, false], [1, true]]) {
    timers.tick(seconds * 1000);
    await settled();
    assert.equal(seen.signal.aborted, aborted, `after ${seconds} s more`);
  }
  seen.end("done");
  assert.equal((await running).value, "done");
});

test("the limits of a call hold for its renewals", async (t) => {
  const timers = mocked(t);
  const jobs = new Limiter(JOBS);
  const { seen, fn } = job();
  const limits = [{ ...places, capacity: 2, time_to_live: "3s" }];
  const running = jobs.run("a", fn, { limits });
  await settled();
  for (let second = 1; second <= 9; second++) {
    timers.tick(1000);
    await settled();
  }
  assert.deepEqual([seen.signal.aborted, jobs.peek("a", { limits }).remaining], [false, 1]);
  seen.end();
  await running;
  assert.equal(jobs.peek("a", { limits }).remaining, 2);
});

test("at a server: the lease is held while the function runs, and then released", async () => {
  const jobs = remote("jobs");
  const { seen, fn } = job();
  const running = jobs.run("held", fn);
  await until(() => seen.signal);
  const refused = await jobs.run("held", () => assert.fail("it was refused"));
  assert.deepEqual([refused.allowed, refused.retryAfterUs > 20_000_000, "value" in refused, "renewEveryUs" in refused], [false, true, false, false]);
  seen.end("done");
  const { allowed, value } = await running;
  assert.deepEqual([allowed, value, seen.signal.aborted], [true, "done", false]);
  await assert.rejects(jobs.run("held", async () => { throw new RangeError("its own"); }), { name: "RangeError" });
  assert.equal((await jobs.acquire("held")).allowed, true);
  for (const [given, message] of [
    [["a"], "`fn`: expected a function, found undefined"], [["a", fn, { now: 5 }], /^`request`: expected .*, found `now`$/], [[5, fn], /^`key`: expected a string/],
  ]) {
    await assert.rejects(jobs.run(...given), { name: "ArgumentError", message });
  }
  await assert.rejects(remote("window").run("a", fn), { code: "INVALID_REQUEST", message: /lease/ });
  assert.equal((await remote("window").peek("a")).remaining, 5);
});

test("at a server: the lease is renewed three times in its time to live, and the signal tells that it is lost", async (t) => {
  const timers = mocked(t);
  let renewed = 0;
  const noting = async (url, init) => {
    const response = await fetch(url, init);
    const text = await response.text();
    renewed += Number(init.method === "PUT");
    return new Response(text, response);
  };
  const long = remote("long", { fetch: noting });
  const { seen, fn } = job();
  const running = long.run("a", fn, { lease: "mine" });
  await until(() => seen.signal);
  for (let thirds = 1; thirds <= 5; thirds++) {
    timers.tick(20 * 60_000 - 1);
    await settled();
    assert.equal(renewed, thirds - 1);
    timers.tick(1);
    await until(() => renewed === thirds);
    for (let turn = 0; turn < 20; turn++) await settled(); // the limiter reads the answer
  }
  assert.equal(seen.signal.aborted, false, "longer than its time to live");
  await long.release("a", "mine");
  timers.tick(20 * 60_000);
  await until(() => seen.signal.aborted);
  assert.equal(seen.signal.reason.code, "LEASE_LOST");
  seen.end("too late");
  assert.equal((await running).value, "too late");
});

test("at a server: a function that runs without a lease loses none", async () => {
  const shadow = remote("shadow");
  await shadow.acquire("a");
  for (const key of ["a", "free"]) assert.equal((await shadow.run(key, (signal) => signal.aborted)).value, false);
  const away = remote("jobs", { url: "http://127.0.0.1:1", onError: "open" });
  assert.equal((await away.run("a", (signal) => signal.aborted)).value, false, "onError lets it pass without a lease");
});

test("a Redis that does not answer for the time to live loses the lease", async (t) => {
  const own = await startServer();
  const other = new Redis({ path: own.path });
  t.after(async () => {
    other.disconnect();
    await own.stop();
  });
  const jobs = new RedisLimiter({ ...JOBS, on_error: "open" }, other, { deadline: "5s" });
  const timers = mocked(t);
  /** Moves the clock past the deadlines of calls until this has ended. */
  const passed = async (promise) => {
    let isOver = false;
    promise.finally(() => (isOver = true));
    await until(() => isOver || timers.tick(5_000));
    return promise;
  };
  const { seen, fn } = job();
  const running = jobs.run("a", fn);
  await until(() => seen.signal);
  own.server.kill("SIGSTOP");
  timers.tick(29_999);
  await settled();
  assert.equal(seen.signal.aborted, false, "the lease is live");
  timers.tick(1);
  assert.equal(seen.signal.reason.code, "LEASE_LOST");
  seen.end("done");
  assert.equal((await passed(running)).value, "done", "what cannot be released ends by itself");
  assert.equal((await passed(jobs.run("a", (signal) => signal.aborted))).value, false, "on_error lets it pass without a lease");
});

test("a lease that is held keeps no process alive", () => {
  const file = join(folder, "held.js");
  writeFileSync(file, `
    import { Limiter } from "tidegate";
    const jobs = new Limiter({ limits: [{ algorithm: "concurrency", capacity: 1, time_to_live: "1h" }] });
    jobs.run("a", () => new Promise(() => {}));
    console.log("started");
  `);
  assert.equal(execFileSync(process.execPath, [file], { cwd: folder, encoding: "utf8" }), "started\n");
});
