// Requests that wait for their turn at a server. A `fetch` that the tests hold stands for the server where the order of answers matters.
import assert from "node:assert/strict";
import { after, test } from "node:test";

import { startHost } from "../host.mjs";
import { load } from "../installed.mjs";
import { assertOneAfterAnother, settled, waiting } from "../waiting.mjs";

const { RemoteLimiter } = await load("tidegate/remote");
const host = await startHost(`
[policies.fast]
limits = [{ algorithm = "token_bucket", capacity = 1, rate = "20/s" }]

[policies.one]
limits = [{ algorithm = "fixed_window", limit = 1, period = "36500d" }]
deny = ["bad"]

[policies.jobs]
limits = [{ algorithm = "concurrency", capacity = 1, time_to_live = "1d" }]

[policies.tokens]
limits = [{ algorithm = "fixed_window", limit = 1, period = "36500d" }]
reservations = {}
`);
after(() => host.stop());
const of = (policy, options) => new RemoteLimiter({ url: host.url, policy, token: "admin", deadline: "30s", ...options });

test("requests on a key are granted one after another, in their order, at the rate of the bucket", async () => {
  await assertOneAfterAnother(of("fast"));
});

test("units that this limiter gives back wake the first request that waits", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  for (const [name, wake] of Object.entries({
    refund: (limiter, _, key) => limiter.refund(key, 1), reset: (limiter, _, key) => limiter.reset(key), grant: (_, grant) => grant.refund(),
    giveBack: (limiter, { atUs }, key) => limiter.giveBack(key, { headers: [], grant: { atUs, units: 1 } }),
  })) {
    const limiter = of("one");
    const grant = await limiter.decide(name, { cost: 1 });
    const waited = limiter.waitFor(name, { cost: 1 });
    await waiting(limiter, 1);
    await wake(limiter, grant, name);
    const next = await waited;
    assert.equal(next.allowed, true, name);
    assert.equal((await next.refund()).allowed, true);
  }
  const [jobs, tokens] = [of("jobs"), of("tokens")];
  const held = await jobs.acquire("a");
  const lease = jobs.waitFor("a");
  await waiting(jobs, 1);
  await held.release();
  assert.match((await lease).lease, /^[0-9a-f]{16,}$/);
  const { id } = await tokens.reserve("a");
  const unit = tokens.waitFor("a");
  await waiting(tokens, 1);
  await tokens.commit("a", id, 0);
  assert.equal((await unit).allowed, true);
  const network = of("one");
  await network.check("ip:2001:db8::1", { cost: 1 });
  const neighbour = network.waitFor("ip:2001:db8::1");
  await waiting(network, 1);
  await network.refund("ip:2001:db8::2", 1);
  assert.equal((await neighbour).allowed, true, "addresses of a network are one key");
});

test("a field of a prototype says nothing of a refusal", async (t) => {
  const limiter = of("fast");
  await limiter.check("prototype");
  t.after(() => { delete Object.prototype.denied; });
  Object.prototype.denied = true;
  assert.equal((await limiter.waitFor("prototype")).allowed, true);
});

test("units that others give back are seen after a second", async (t) => {
  let hasAnswered;
  const answered = new Promise((resolve) => { hasAnswered = resolve; });
  const noting = async (url, init) => {
    const response = await fetch(url, init);
    const text = await response.text();
    hasAnswered();
    return new Response(text, response);
  };
  const [own, other] = [of("jobs", { fetch: noting }), of("jobs")];
  const held = await other.acquire("b");
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const waited = own.waitFor("b", { jitter: 0 });
  await answered;
  await settled();
  await held.release();
  t.mock.timers.tick(1_000);
  assert.equal((await waited).allowed, true);
});

test("a request that cannot pass, or that is ended, is rejected", async () => {
  const limiter = of("one");
  await assert.rejects(limiter.waitFor("bad"), { name: "LimiterError", code: "NEVER_GRANTED" });
  for (const options of [{ now: 1 }, { draw: 1 }, { limits: [] }, { idempotencyKey: "a" }, { cost: 0 }]) await assert.rejects(limiter.waitFor("a", options), { name: "ArgumentError" });
  await assert.rejects(limiter.waitFor(""), { code: "INVALID_KEY" });
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

const said = { policy: "one", limit: 1, remaining: 0, reset_after_us: 1, limits: [] };
const refusal = { ...said, allowed: false, retry_after_us: 30_000 };
const grant = { ...said, allowed: true, retry_after_us: 0 };

/** A `fetch` that answers when it is told to. */
function held() {
  const answers = [];
  const answer = async (json) => {
    while (answers.length === 0) await new Promise(setImmediate);
    answers.shift()(Response.json(json));
  };
  return { answers, answer, fetch: () => new Promise((resolve) => answers.push(resolve)) };
}

test("the wait goes by the timers of this process, whatever the server's clock says", async (t) => {
  const { answer, answers, fetch } = held();
  const limiter = of("one", { fetch });
  t.mock.timers.enable({ apis: ["setTimeout", "Date"], now: 1_700_000_000_000 });
  const waited = limiter.waitFor("a", { jitter: 0 });
  await answer({ ...refusal, at_us: 1_700_003_600_000_000 }); // an hour ahead
  await settled();
  t.mock.timers.tick(29);
  await settled();
  assert.equal(answers.length, 0);
  t.mock.timers.tick(1);
  await answer({ ...grant, at_us: 1_700_003_600_030_000 });
  const { allowed, atUs } = await waited;
  assert.deepEqual([allowed, atUs], [true, 1_700_003_600_030_000]);
});

test("a grant that is under way when its caller leaves, or the limiter closes, is not lost", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  for (const end of [(limiter, stop) => stop.abort(), (limiter) => void limiter.close()]) {
    const { answer, answers, fetch } = held();
    const limiter = of("one", { fetch });
    const stop = new AbortController();
    const waited = limiter.waitFor("a", { signal: stop.signal, jitter: 0 });
    await answer({ ...refusal, at_us: 1 });
    await settled();
    t.mock.timers.tick(30);
    while (answers.length === 0) await new Promise(setImmediate); // it asks again
    end(limiter, stop);
    await answer({ ...grant, at_us: 2 });
    assert.equal((await waited).allowed, true);
  }
});

test("a request waits until the server is back, unless `onError` lets it pass", async (t) => {
  let isAway = true;
  let calls = 0;
  const fetch = async () => {
    calls++;
    if (isAway) throw new TypeError("fetch failed");
    return Response.json({ ...grant, at_us: 1 });
  };
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const waited = of("one", { fetch }).waitFor("a", { jitter: 0 });
  for (let asked = 1; asked <= 2; asked++) {
    while (calls < asked) await new Promise(setImmediate);
    await settled(); // the answer has come
    if (asked === 1) t.mock.timers.tick(1_000);
  }
  isAway = false;
  t.mock.timers.tick(1_000);
  assert.equal((await waited).remaining, 0);
  isAway = true;
  assert.deepEqual({ ...await of("one", { fetch, onError: "open" }).waitFor("a") }, { allowed: true, degraded: "server: fetch failed" });
});
