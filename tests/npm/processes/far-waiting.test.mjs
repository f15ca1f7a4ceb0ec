// Requests that wait for their turn at a limiter on Redis, and at a server. What the tests hold stands for the store where the order of
// answers matters.
import assert from "node:assert/strict";
import { after, test } from "node:test";

import { Redis } from "ioredis";

import { startHost } from "../host.mjs";
import { load } from "../installed.mjs";
import { startServer } from "../redis.mjs";
import { assertOneAfterAnother, settled, until, waiting } from "../waiting.mjs";

const { RedisLimiter } = await load("tidegate/redis");
const { RemoteLimiter } = await load("tidegate/remote");
const { toml } = await load("tidegate/toml");

const FILE = `
[policies.fast]
limits = [{ algorithm = "token_bucket", capacity = 1, rate = "20/s" }]

[policies.one]
limits = [{ algorithm = "fixed_window", limit = 1, period = "36500d" }]
deny = ["bad"]
allow = ["good"]

[policies.open]
limits = [{ algorithm = "fixed_window", limit = 1, period = "36500d" }]
on_error = "open"

[policies.jobs]
limits = [{ algorithm = "concurrency", capacity = 1, time_to_live = "1d" }]

[policies.tokens]
limits = [{ algorithm = "fixed_window", limit = 1, period = "36500d" }]
reservations = {}
`;
const redis = await startServer();
const client = new Redis({ path: redis.path });
const host = await startHost(FILE);
after(async () => {
  client.disconnect();
  await Promise.all([redis.stop(), host.stop()]);
});

const onRedis = (policy, ask = client) => new RedisLimiter(toml(FILE), ask, { policy, deadline: "1h" });
const remote = (policy, options) => new RemoteLimiter({ url: host.url, policy, token: "admin", deadline: "1h", ...options });

const said = { policy: "one", limit: 1, remaining: 0, at_us: 1, reset_after_us: 1, limits: [] };
const grant = { ...said, allowed: true, retry_after_us: 0 };
const refusal = { ...said, allowed: false, retry_after_us: 3_600_000_000 };

/** Each limiter, and one whose store answers as the function `ask` does: a promise of whether a request is granted. */
const LIMITERS = {
  Redis: { of: onRedis, by: (ask) => onRedis("one", { callBuffer: async () => (await ask(), 0) }) }, // what Redis has stored decides
  "a server": { of: remote, by: (ask) => remote("one", { fetch: async () => Response.json(await ask() ? grant : refusal) }) },
};

for (const [name, { of, by }] of Object.entries(LIMITERS)) {
  test(`${name}: requests on a key are granted one after another, in their order, at the rate of the bucket`, async () => {
    await assertOneAfterAnother(of("fast"));
  });

  test(`${name}: what this limiter gives back wakes the first request that waits`, async (t) => {
    t.mock.timers.enable({ apis: ["setTimeout"] }); // none looks again by itself
    for (const [how, wake] of Object.entries({
      refund: (limiter, _, key) => limiter.refund(key, 1), reset: (limiter, _, key) => limiter.reset(key), grant: (_, grant) => grant.refund(),
      giveBack: (limiter, { atUs }, key) => limiter.giveBack(key, { headers: [], grant: { atUs, units: 1 } }),
    })) {
      const limiter = of("one");
      const grant = await limiter.decide(how, { cost: 1 });
      const waited = limiter.waitFor(how, { cost: 1 });
      await waiting(limiter, 1);
      await wake(limiter, grant, how);
      assert.equal((await waited).allowed, true, how);
    }
    const [jobs, tokens] = [of("jobs"), of("tokens")];
    const held = await jobs.acquire("ip:2001:db8::1");
    const lease = jobs.waitFor("ip:2001:db8::2"); // addresses of a network are one key
    await waiting(jobs, 1);
    await held.release();
    assert.match((await lease).lease, /^[0-9a-f]{16,}$/);
    const { id } = await tokens.reserve("a");
    const unit = tokens.waitFor("a");
    await waiting(tokens, 1);
    await tokens.commit("a", id, 0);
    assert.equal((await unit).allowed, true);
  });

  test(`${name}: what others give back is seen after a second`, async (t) => {
    const [own, other] = [of("jobs"), of("jobs")];
    const held = await other.acquire("others");
    t.mock.timers.enable({ apis: ["setTimeout"] });
    let isOver = false;
    const waited = own.waitFor("others", { jitter: 0 }).finally(() => { isOver = true; });
    await waiting(own, 1);
    await settled();
    await held.release();
    await until(() => {
      t.mock.timers.tick(1_000);
      return isOver;
    });
    assert.equal((await waited).allowed, true);
  });

  test(`${name}: a request that cannot pass, or that is ended, is rejected`, async () => {
    const limiter = of("one");
    await assert.rejects(limiter.waitFor("bad"), { name: "LimiterError", code: "NEVER_GRANTED" });
    await assert.rejects(limiter.waitFor(""), { code: "INVALID_KEY" });
    for (const options of [{ now: 1 }, { limits: [] }, { idempotencyKey: "a" }, { cost: 0 }]) await assert.rejects(limiter.waitFor("a", options), { name: "ArgumentError" });
    await limiter.waitFor("a");
    const [stop, reason] = [new AbortController(), new Error("enough")];
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

  test(`${name}: a grant that is under way when its caller leaves, or the limiter closes, is not lost`, async () => {
    for (const end of [(_, stop) => stop.abort(), (limiter) => void limiter.close()]) {
      const asked = [];
      const limiter = by(() => new Promise((resolve) => asked.push(resolve)));
      const answer = async (isGranted) => {
        await until(() => asked.length > 0);
        asked.shift()(isGranted);
      };
      const stop = new AbortController();
      const first = limiter.waitFor("a");
      await answer(true);
      assert.equal((await first).allowed, true);
      const waits = limiter.waitFor("a", { signal: stop.signal });
      await answer(false);
      await settled();
      const reset = limiter.reset("a");
      await answer(true);
      await reset;
      await until(() => asked.length > 0); // the request asks again
      end(limiter, stop);
      await answer(true);
      assert.equal((await waits).allowed, true);
    }
  });

  test(`${name}: a request waits until the store is back, and each second asks again`, async (t) => {
    let [isAway, calls] = [true, 0];
    t.mock.timers.enable({ apis: ["setTimeout"] });
    const waited = by(async () => {
      calls++;
      if (isAway) throw new Error("READONLY replica");
      return true;
    }).waitFor("a", { jitter: 0 });
    for (let asked = 1; asked <= 2; asked++) {
      await until(() => calls >= asked);
      await settled(); // the answer has come
      if (asked === 1) t.mock.timers.tick(1_000);
    }
    isAway = false;
    t.mock.timers.tick(1_000);
    assert.equal((await waited).allowed, true);
  });
}

test("an explanation of a Redis that is away has no words", async () => {
  const limiter = onRedis("one", { callBuffer: async () => { throw new Error("READONLY replica"); } });
  assert.deepEqual(await limiter.explain("a"), { allowed: false, degraded: "redis: READONLY replica" });
  assert.equal((await limiter.explain("good")).text, "The key is on the list `allow`, so its requests pass and are not counted.");
});

test("more requests wait on a key than Redis may be asked at once, and none passes beyond the limit", async () => {
  const limiter = onRedis("open");
  const stop = new AbortController();
  const order = [];
  const waits = Array.from({ length: 9_000 }, async (_, place) => {
    try {
      const { degraded } = await limiter.waitFor("many", { signal: stop.signal });
      order.push([place, degraded]);
    } catch (error) {
      assert.equal(error.name, "AbortError");
    }
  });
  assert.equal(limiter.waiting, 9_000);
  await until(() => order.length > 0);
  for (const next of [1, 2]) {
    await limiter.reset("many");
    await until(() => order.length > next);
  }
  await waiting(limiter, 8_997);
  stop.abort();
  await Promise.all(waits);
  assert.deepEqual(order, [[0, undefined], [1, undefined], [2, undefined]]);
});

test("a request that is not begun because too many wait at Redis keeps its place, whatever `on_error` says", async (t) => {
  let answer;
  const isAnswering = new Promise((resolve) => { answer = resolve; });
  const limiter = onRedis("open", { callBuffer: async () => (await isAnswering, 0) });
  const checks = Array.from({ length: 8_192 }, () => limiter.check("a"));
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const order = [];
  const waits = [0, 1].map(async (place) => {
    const { degraded } = await limiter.waitFor("a", { jitter: 0 });
    order.push([place, degraded]);
  });
  await settled();
  assert.deepEqual(order, []);
  answer();
  assert.equal((await Promise.all(checks)).filter(({ allowed }) => allowed).length, 1);
  for (const next of waits) {
    await limiter.reset("a");
    await next;
  }
  assert.deepEqual(order, [[0, undefined], [1, undefined]]);
});

test("the wait goes by the timers of this process, whatever the server's clock says, and `onError` may let a request pass", async (t) => {
  const answers = [{ ...refusal, retry_after_us: 30_000, at_us: 1_700_003_600_000_000 }, { ...grant, at_us: 1_700_003_600_030_000 }]; // an hour ahead
  const limiter = remote("one", { onError: "open", fetch: async () => Response.json(answers.shift()) });
  t.mock.timers.enable({ apis: ["setTimeout", "Date"], now: 1_700_000_000_000 });
  const waited = limiter.waitFor("a", { jitter: 0 });
  await until(() => answers.length === 1);
  for (const [ms, left] of [[29, 1], [1, 0]]) {
    await settled();
    t.mock.timers.tick(ms);
    await settled();
    assert.equal(answers.length, left);
  }
  const { allowed, atUs } = await waited;
  assert.deepEqual([allowed, atUs], [true, 1_700_003_600_030_000]);
  assert.equal((await limiter.waitFor("b")).allowed, true, "nobody decides");
});

test("a field of a prototype says nothing of a refusal", async (t) => {
  const limiter = remote("fast");
  await limiter.check("prototype");
  t.after(() => { delete Object.prototype.denied; });
  Object.prototype.denied = true;
  assert.equal((await limiter.waitFor("prototype")).allowed, true);
});
