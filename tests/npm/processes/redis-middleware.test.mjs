// The middleware of each framework asks a limiter on Redis: the same requests get the same answers as from a limiter in memory.
import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import { after, mock, test } from "node:test";

import { Redis } from "ioredis";

import { frameworks, serve } from "../frameworks.mjs";
import { load } from "../installed.mjs";
import { startServer } from "../redis.mjs";
import { until } from "../waiting.mjs";

const { Limiter } = await load();
const { toml } = await load("tidegate/toml");
const { RedisLimiter } = await load("tidegate/redis");
const redis = await startServer();
const client = new Redis({ path: redis.path, retryStrategy: () => null }).on("error", () => {});
after(async () => {
  client.disconnect();
  await redis.stop();
});

const NOW_MS = 1_700_000_000_000;
const FILE = `
trusted_proxies = ["127.0.0.0/8"]
[policies.api]
key = ["header:x-api-key", ["cookie:sid", "ip"], "query:token"]
limits = [{ algorithm = "fixed_window", limit = 3, period = "1h", start = "first" }, { algorithm = "sliding_log", rates = ["4/m"] }]
deny = ["header:x-api-key:mallory"]

[policies.jobs]
key = ["header:x-api-key"]
limits = [{ algorithm = "concurrency", capacity = 1, time_to_live = "30s" }]

[policies.tokens]
key = ["header:x-api-key"]
limits = [{ algorithm = "fixed_window", limit = 9, period = "1h", start = "first" }]
reservations = {}
`;

/** A limiter whose names in Redis no other test uses. */
let count = 0;
const of = (policy, { file = FILE, ...options } = {}) => new RedisLimiter(toml(file), client, { policy, prefix: `middleware-${count++}:`, deadline: "10s", ...options });

const FIELDS = ["ratelimit", "ratelimit-policy", "x-ratelimit-remaining", "retry-after", "content-type", "cache-control"];

async function ask(port, { path = "/", ...headers } = {}) {
  const request = http.request({ port, host: "127.0.0.1", path, headers, agent: false }).end();
  const [response] = await once(request, "response");
  const body = (await response.setEncoding("utf8").toArray()).join("");
  return [response.statusCode, body, ...FIELDS.map((name) => (response.statusCode === 200 && name === "content-type" ? "" : response.headers[name]))];
}

function stopClock(t) {
  mock.timers.enable({ apis: ["Date"], now: NOW_MS });
  t.after(() => mock.timers.reset());
}

const alice = { "x-api-key": "alice" };
const REQUESTS = [
  alice, alice, { ...alice, path: "/?x" }, alice, { "x-api-key": "mallory" }, { cookie: "sid=a", "x-forwarded-for": "192.0.2.1" },
  { cookie: "sid=a", "x-forwarded-for": "192.0.2.2" }, { path: "/?token=%61" }, { path: "/?token=a" }, { cookie: "b=c" }, { "x-api-key": "é" },
];
const servers = frameworks();

for (const [framework, listener] of Object.entries(servers)) {
  test(`${framework}: the same requests get the same bytes`, async (t) => {
    stopClock(t);
    for (const options of [{}, { headers: "x-ratelimit" }, { cost: 2 }, { key: () => "" }, { cost: () => 4 }]) {
      const start = async (limiter) => serve(t, await listener(limiter, options, async () => "hello"));
      const [memory, remote] = [await start(new Limiter(toml(FILE), { policy: "api" })), await start(of("api"))];
      for (const request of REQUESTS) {
        assert.deepEqual(await ask(remote, request), await ask(memory, request), `${JSON.stringify(options)}, ${JSON.stringify(request)}`);
      }
    }
  });
}

/** Asks again until the lease of an earlier response has come back. */
const granted = (port) => until(async () => (await ask(port, alice))[0] === 200);

test("a lease is held until the response has ended", async (t) => {
  let answer;
  const slow = () => new Promise((resolve) => { answer = resolve; });
  const limiter = of("jobs");
  const port = await serve(t, await servers.express(limiter, {}, async (path) => (path === "/slow" ? slow() : "hello")));
  const first = ask(port, { ...alice, path: "/slow" });
  while (answer === undefined) await new Promise(setImmediate);
  assert.equal((await ask(port, alice))[0], 429);
  answer("slow");
  assert.equal((await first)[0], 200);
  await granted(port);
  await limiter.close();
});

test("a true cost is committed, and units come back if another limiter refuses", async (t) => {
  const [tokens, api] = [of("tokens"), of("api")];
  const metered = await serve(t, await servers.koa(tokens, { cost: 5, actual: { bytes: 1 } }, async () => "ab"));
  assert.equal((await ask(metered, alice))[0], 200);
  const remaining = async (limiter, key) => (await limiter.peek(key)).remaining;
  const key = "header:x-api-key:alice";
  await until(async () => await remaining(tokens, key) === 7); // 2 units are committed
  const both = await serve(t, await servers.koa([tokens, api], { cost: 1 }, async () => "hello"));
  for (let request = 0; request < 3; request++) assert.equal((await ask(both, alice))[0], 200);
  assert.equal((await ask(both, alice))[0], 429);
  assert.equal(await remaining(tokens, key), 4);
});

test("options that the policy does not have are refused", async () => {
  const { rateLimit } = await load("tidegate/express");
  assert.throws(() => rateLimit(of("api"), { actual: { bytes: 1 } }), { code: "INVALID_OPTION", message: /`reservations`/ });
  assert.throws(() => rateLimit(of("api"), { headers: "draft-1" }), { code: "INVALID_OPTION", message: /^`options.headers`/ });
  const closed = of("api");
  await closed.close();
  assert.throws(() => rateLimit(closed), { code: "FREED" });
});

test("Redis is away: the request passes or gets 503, as the policy says", async (t) => {
  const away = await startServer();
  const own = new Redis({ path: away.path }).on("error", () => {});
  await own.ping();
  away.server.kill("SIGSTOP");
  t.after(async () => {
    own.disconnect();
    await away.stop();
  });
  const limits = [{ algorithm: "fixed_window", limit: 1, period: "1h" }];
  for (const [on_error, expected] of [["open", 200], ["closed", 503]]) {
    const limiter = new RedisLimiter({ limits, on_error }, own, { deadline: "50ms" });
    const reasons = [];
    const port = await serve(t, await servers.fastify(limiter, { key: () => "a", onError: ({ message }) => reasons.push(message) }, async () => "hello"));
    for (let request = 0; request < 2; request++) {
      const [status, body] = await ask(port);
      assert.equal(status, expected);
      if (status === 503) assert.equal(JSON.parse(body).detail, "the store is unavailable");
    }
    assert.deepEqual(reasons, ["redis: no answer within 50 ms", "redis: no answer within 50 ms"], "no client is told, but the log is");
  }
});

test("without `onError` the console is told of an outage once when it begins, whoever finds it, and once when it ends", async (t) => {
  const written = t.mock.method(console, "error", () => {});
  t.mock.timers.enable({ apis: ["Date"], now: NOW_MS });
  const { rateLimit } = await load("tidegate/fetch");
  let isAway = true;
  const answer = async () => { if (isAway) throw new Error("READONLY replica"); return 0; };
  const limiter = new RedisLimiter({ limits: [{ algorithm: "fixed_window", limit: 99, period: "1h" }] }, { callBuffer: answer });
  const handlers = [0, 1].map(() => rateLimit(limiter, () => new Response("hello"), { key: () => "a" }));
  const statuses = async () => {
    const found = [];
    for (const handle of handlers) found.push((await handle(new Request("http://localhost/"))).status);
    t.mock.timers.tick(6_000);
    return found;
  };
  for (let time = 0; time < 8; time++) assert.deepEqual(await statuses(), [503, 503]);
  isAway = false;
  for (let time = 0; time < 2; time++) assert.deepEqual(await statuses(), [200, 200]);
  assert.deepEqual(written.mock.calls.map(({ arguments: all }) => all), [
    ["tidegate: requests are not decided on, so `on_error` holds: redis: READONLY replica"], ["tidegate: requests are decided on again"],
  ]);
});

test("a lease that could not be renewed or released is told, and renewed again", async () => {
  const { MemoryStore } = await load("tidegate/fetch");
  const limiter = new RedisLimiter(toml(FILE), { callBuffer: async () => { throw new Error("away"); } }, { policy: "jobs", deadline: "50ms" });
  const store = new MemoryStore(limiter);
  await assert.rejects(store.renew("a", "b"), { message: "redis: away" });
  await assert.rejects(store.release("a", "b"), { message: "redis: away" });
  await assert.rejects(store.commit("a", "b", 1), { code: "INVALID_REQUEST" });
  await assert.rejects(limiter.giveBack("a", { headers: [], lease: { name: "b", renewEveryUs: 1 } }), { code: "UNAVAILABLE" });
});
