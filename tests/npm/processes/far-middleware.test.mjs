// The middleware of each framework asks a limiter on Redis, or one at a server: the same requests get the same answers as from a limiter in
// memory.
import assert from "node:assert/strict";
import { after, mock, test } from "node:test";

import { Redis } from "ioredis";

import { frameworks, serve } from "../frameworks.mjs";
import { startHost } from "../host.mjs";
import { load } from "../installed.mjs";
import { startServer } from "../redis.mjs";
import { until } from "../waiting.mjs";

const { Limiter, metering } = await load();
const { toml } = await load("tidegate/toml");
const { RedisLimiter } = await load("tidegate/redis");
const { RemoteLimiter } = await load("tidegate/remote");
const { MemoryStore, rateLimit } = await load("tidegate/fetch");

const NOW_MS = 1_700_000_000_000;
/** Windows of which no test sees the end. */
const FILE = `
trusted_proxies = ["127.0.0.0/8"]
[policies.api]
key = ["header:x-api-key", ["cookie:sid", "ip"], "query:token"]
limits = [{ algorithm = "fixed_window", limit = 5, period = "36500d" }, { algorithm = "fixed_window", name = "more", limit = 9, period = "36500d" }]
deny = ["mallory", "header:x-api-key:mallory"]
allow = ["root"]

[policies.jobs]
limits = [{ algorithm = "concurrency", capacity = 1, time_to_live = "30s" }]

[policies.plans]
limits = [
  { algorithm = "fixed_window", name = "plan", limit = 5, period = "36500d", payer = true },
  { algorithm = "fixed_window", name = "more", limit = 5, period = "36500d", payer = true },
]

[policies.tokens]
limits = [{ algorithm = "fixed_window", limit = 100, period = "36500d" }]
reservations = {}
`;
const redis = await startServer();
const client = new Redis({ path: redis.path, retryStrategy: () => null }).on("error", () => {});
const host = await startHost(FILE, { env: { TIDEGATE_TOKEN: "secret" } });
after(async () => {
  client.disconnect();
  await Promise.all([redis.stop(), host.stop()]);
});
const onRedis = (policy, options) => new RedisLimiter(toml(FILE), client, { policy, deadline: "10s", ...options });
const remote = (policy, options) => new RemoteLimiter({ url: host.url, policy, token: "secret", deadline: "30s", metering: policy === "tokens" ? metering : undefined, ...options });
const inMemory = (policy) => new Limiter(toml(FILE), { policy });
const LIMITERS = { Redis: onRedis, "a server": remote };

const FIELDS = ["ratelimit", "ratelimit-policy", "retry-after", "content-type", "cache-control", "x-ratelimit-reset"];

/** Without what passes between two answers: the seconds until a window ends, in a header or in a sentence. */
const withoutSpans = (text) => text?.replace(/\b(t|reset)=\d+/g, "$1").replace(/\d+ (µs|s)$/, "$1");

/** What a server answers, without spans and times unless the clock stands still. */
async function ask(port, headers = {}, path = "/", timeless = withoutSpans) {
  const response = await fetch(`http://127.0.0.1:${port}${path}`, { headers });
  const fields = FIELDS.map((name) => timeless(response.headers.get(name) ?? undefined));
  if (response.status === 200) return [200, await response.text(), ...fields.toSpliced(2, 3)];
  const { retry_after_us, detail, ...problem } = await response.json();
  assert.equal(retry_after_us === undefined, fields[2] === undefined);
  if (fields[2] !== undefined) assert.match(fields[2], /^\d+$/);
  return [response.status, problem, timeless(detail), fields.toSpliced(2, 1)];
}

function stopClock(t) {
  mock.timers.enable({ apis: ["Date"], now: NOW_MS });
  t.after(() => mock.timers.reset());
}

const status = async (port, headers) => (await fetch(`http://127.0.0.1:${port}/`, { headers })).status;

const servers = frameworks();
/** The function `key` of each framework gets what the framework calls its middleware with. */
const header = (name) => (request) => {
  const { headers } = request.req?.raw ?? request.req ?? request;
  return typeof headers.get === "function" ? headers.get(name) : headers[name];
};
const options = { key: header("x-user"), cost: (request) => Number(header("x-cost")(request)) };
const of = (user, cost = 1) => ({ "x-user": user, "x-cost": String(cost) });
const hello = async () => "hello";

for (const [framework, listener] of Object.entries(servers)) {
  test(`${framework}: the same requests get the same answers`, async (t) => {
    const start = async (limiter) => serve(t, await listener(limiter, options, hello));
    const ports = await Promise.all([inMemory, onRedis, remote].map((make) => start(make("api"))));
    const alice = `alice/${framework}`;
    for (const [user, cost] of [[alice, 1], [alice, 3], [alice, 2], [alice, 0], [alice, 1], [alice, 6], ["mallory", 1], ["root", 9], ["", 1], ["x".repeat(513), 1], ["ip:x", 1]]) {
      const [expected, ...found] = await Promise.all(ports.map((port) => ask(port, of(user, cost))));
      for (const one of found) assert.deepEqual(one, expected, `${user.slice(0, 40)}, ${cost}`);
    }
  });

  test(`${framework}: Redis has the key that the policy reads, and the time of this process`, async (t) => {
    stopClock(t);
    const alice = { "x-api-key": "alice" };
    const from = (address) => ({ cookie: "sid=a", "x-forwarded-for": address });
    for (const given of [{}, { headers: "x-ratelimit" }, { cost: 2 }, { key: () => "" }, { cost: () => 6 }]) {
      const ports = await Promise.all([inMemory("api"), onRedis("api", { prefix: `${framework}${JSON.stringify(given)}${given.key ?? given.cost}` })].map(async (limiter) => serve(t, await listener(limiter, given, hello))));
      for (const [headers, path] of [[alice], [alice, "/?x"], [{ "x-api-key": "mallory" }], [from("192.0.2.1")], [from("192.0.2.2")], [{}, "/?token=%61"], [{}, "/?token=a"], [{ cookie: "b=c" }]]) {
        const [expected, found] = await Promise.all(ports.map((port) => ask(port, headers, path, (text) => text)));
        assert.deepEqual(found, expected, `${JSON.stringify(given)}, ${JSON.stringify([headers, path])}`);
      }
    }
  });
}

for (const [name, make] of Object.entries(LIMITERS)) {
  test(`${name}: a lease is held until the response has ended`, async (t) => {
    const jobs = make("jobs");
    const [passed, release] = [Promise.withResolvers(), Promise.withResolvers()];
    const port = await serve(t, await servers.hono(jobs, { key: () => "held" }, async () => (passed.resolve(), release.promise)));
    const first = fetch(`http://127.0.0.1:${port}/`);
    await passed.promise;
    const [second, , , [, policy]] = await ask(port);
    assert.deepEqual([second, policy], [429, '"jobs";q=1;qu="concurrent-requests"']);
    release.resolve("hello");
    assert.equal(await (await first).text(), "hello");
    await until(async () => (await jobs.peek("held", { cost: 1 })).allowed);
  });

  test(`${name}: what the handler gives back is back at once`, async (t) => {
    const api = make("api");
    const port = await serve(t, await servers.next(api, { key: () => "given", cost: 2 }, async (_, { keys, remaining, giveBack }) => {
      await giveBack();
      return JSON.stringify([keys, remaining, (await api.peek("given")).remaining]);
    }));
    assert.equal((await ask(port))[1], '[["given"],3,5]');
  });

  test(`${name}: the true cost that the response tells is committed, and what does not count comes back`, async (t) => {
    const [tokens, api] = [make("tokens"), make("api")];
    const used = await serve(t, await servers.express(tokens, { key: () => "used", cost: 50, actual: { bytes: 1 } }, async () => "seven b"));
    const failed = await serve(t, await servers.koa([api, tokens], { key: () => "failed", cost: 50, countIf: { status: "500-599" } }, hello));
    const left = (key, expected) => until(async () => (await tokens.peek(key)).remaining === expected);
    await ask(used);
    await left("used", 93);
    await ask(failed);
    await left("failed", 100);
    assert.equal((await api.peek("failed")).remaining, 4, "it took the cost of its policy, and no estimate");
  });

  test(`${name}: if a limiter refuses, the units, leases and reservations of the others come back`, async (t) => {
    const memory = new Limiter({ limits: [{ algorithm: "fixed_window", limit: 2, period: "36500d" }] });
    const [api, jobs] = [make("api"), make("jobs")];
    const port = await serve(t, await servers.express([api, jobs, memory], { key: () => "undone" }, hello));
    for (const expected of [200, 200, 429]) assert.equal(await status(port), expected);
    assert.equal((await api.peek("undone")).remaining, 3, "two requests have passed");
    assert.match((await ask(port))[3][1], /^"policy";q=2;/, "the refusal is that of the last");
    await until(async () => (await jobs.peek("undone", { cost: 1 })).allowed);
    const other = new Limiter({ limits: [{ algorithm: "fixed_window", limit: 50, period: "36500d" }] });
    const last = await serve(t, await servers.koa([other, api], options, hello));
    assert.deepEqual([await status(last, of("both", 5)), await status(last, of("both", 1)), other.peek("both").remaining], [200, 429, 45]);
    const payers = await serve(t, await servers.express([other, make("plans")], { key: () => "last" }, hello));
    assert.equal(await status(payers), 200, "payers may stand last");
  });

  test(`${name}: an older form of the headers is that of the limiter in memory`, async (t) => {
    for (const headers of ["draft-7", "draft-6", "x-ratelimit"]) {
      const all = await Promise.all([inMemory("api"), make("api")].map(async (limiter) => {
        const port = await serve(t, await servers.koa(limiter, { key: () => headers, headers }, hello));
        const response = await fetch(`http://127.0.0.1:${port}/`);
        return [...response.headers].filter(([name]) => name.includes("ratelimit")).map(([name, value]) => [name, /reset/.test(name) ? "" : withoutSpans(value)]);
      }));
      assert.ok(all[0].length > 1, headers);
      assert.deepEqual(all[1], all[0]);
    }
  });
}

/** Limiters whose store is silent, or refuses at once, and what middleware is told of it. */
const hangs = () => new Promise(() => {});
const refuses = async () => { throw new Error("READONLY"); };
const onFake = (answer) => (on_error) => new RedisLimiter({ limits: [{ algorithm: "fixed_window", limit: 1, period: "1h" }], on_error }, { callBuffer: answer }, { deadline: "50ms" });
const atFake = (answer) => (onError) => remote("api", { onError, deadline: "50ms", fetch: answer });
const AWAY = {
  "a silent Redis": [onFake(hangs), "redis: no answer within 50 ms", "the store is unavailable"],
  "a Redis that refuses": [onFake(refuses), "redis: READONLY", "the store is unavailable"],
  "a silent server": [atFake(hangs), "server: no answer within 50 ms", "the rate limit cannot be asked"],
  "a server that refuses": [atFake(refuses), "server: READONLY", "the rate limit cannot be asked"],
};
for (const [what, [make, reason, detail]] of Object.entries(AWAY)) {
  test(`${what}: requests pass or get 503, and \`onError\` is told why`, async () => {
    for (const [onError, expected] of [["open", 200], ["closed", 503]]) {
      const told = [];
      const handle = rateLimit(make(onError), () => new Response("hello"), { key: () => "a", onError: ({ message }) => told.push(message) });
      for (const _ of [1, 2]) {
        const response = await handle(new Request("http://localhost/"));
        assert.equal(response.status, expected);
        if (expected === 503) assert.equal((await response.json()).detail, detail, "no client is told why");
      }
      assert.deepEqual(told, [reason, reason]);
    }
  });
}

/** A limiter whose store answers, once `state.isAway` is false. */
const RETURNING = {
  Redis: (state) => new RedisLimiter(toml(FILE), { callBuffer: async () => (state.isAway ? refuses() : 0) }, { policy: "api" }),
  "a server": (state) => remote("api", { fetch: (...given) => (state.isAway ? refuses() : fetch(...given)) }),
};
for (const [name, make] of Object.entries(RETURNING)) {
  test(`${name}: without \`onError\` the console is told of an outage once when it begins, whoever finds it, and once when it ends`, async (t) => {
    const written = t.mock.method(console, "error", () => {});
    stopClock(t);
    const state = { isAway: true };
    const limiter = make(state);
    const handlers = [0, 1].map(() => rateLimit(limiter, () => new Response("hello"), { key: () => "returning" }));
    const statuses = async () => {
      const found = [];
      for (const handle of handlers) found.push((await handle(new Request("http://localhost/"))).status);
      mock.timers.tick(6_000);
      return found;
    };
    for (let time = 0; time < 8; time++) assert.deepEqual(await statuses(), [503, 503]);
    state.isAway = false;
    for (let time = 0; time < 2; time++) assert.deepEqual(await statuses(), [200, 200]);
    assert.deepEqual(written.mock.calls.map(({ arguments: all }) => all), [
      [`tidegate: requests are not decided on, so \`on_error\` holds: ${name === "Redis" ? "redis" : "server"}: READONLY`], ["tidegate: requests are decided on again"],
    ]);
  });
}

test("what is set up wrongly is an error of the application, and no answer of the client's", async (t) => {
  for (const [limiter, given] of [
    [remote("none"), options], [remote("api", { token: "wrong" }), options], [[remote("plans"), remote("api")], options],
    [remote("api", { metering }), { key: () => "k", actual: 1 }], [remote("api"), { key: () => "k", headers: "draft-1" }],
  ]) {
    assert.equal(await status(await serve(t, await servers.fetch(limiter, given, hello)), of("alice")), 500);
  }
});

test("options that a limiter cannot have are refused", async () => {
  const { key } = options;
  const closed = onRedis("api");
  await closed.close();
  for (const [limiter, given, message] of [
    [remote("api"), {}, /^`options.key`: expected a function/],
    [remote("tokens", { metering: undefined }), { key, actual: 1 }, /^`options.metering` of the RemoteLimiter: expected `metering` of `tidegate`/],
    [remote("tokens"), { key, actual: { weight: 1 } }, /^`options.actual`/],
    [remote("api"), { key, keys: 1 }, /found `keys`$/],
    [onRedis("api"), { actual: { bytes: 1 } }, /`reservations`/],
    [onRedis("api"), { headers: "draft-1" }, /^`options.headers`/],
  ]) {
    assert.throws(() => rateLimit(limiter, hello, given), { code: "INVALID_OPTION", message });
  }
  assert.throws(() => rateLimit(closed, hello), { code: "FREED" });
});

test("a lease that could not be renewed or released is told, and renewed again", async () => {
  const limiter = new RedisLimiter(toml(FILE), { callBuffer: refuses }, { policy: "jobs", deadline: "50ms" });
  const store = new MemoryStore(limiter);
  await assert.rejects(store.renew("a", "b"), { message: "redis: READONLY" });
  await assert.rejects(store.release("a", "b"), { message: "redis: READONLY" });
  await assert.rejects(store.commit("a", "b", 1), { code: "INVALID_REQUEST" });
  await assert.rejects(limiter.giveBack("a", { headers: [], lease: { name: "b", renewEveryUs: 1 } }), { code: "UNAVAILABLE" });
});
