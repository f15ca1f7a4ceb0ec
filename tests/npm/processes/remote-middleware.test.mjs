// The middleware of each framework asks a server: the same requests get the same answers as from a limiter in memory.
import assert from "node:assert/strict";
import { after, test } from "node:test";

import { frameworks, serve } from "../frameworks.mjs";
import { startHost } from "../host.mjs";
import { load } from "../installed.mjs";
import { until } from "../waiting.mjs";

const { Limiter, metering } = await load();
const { toml } = await load("tidegate/toml");
const { RemoteLimiter } = await load("tidegate/remote");

/** Windows of which no test sees the end. */
const POLICIES = `
[policies.api]
limits = [{ algorithm = "fixed_window", limit = 5, period = "36500d" }, { algorithm = "fixed_window", name = "more", limit = 9, period = "36500d" }]
deny = ["mallory"]
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

[policies.shed]
limits = [{ algorithm = "utilization" }]
`;
const env = { TIDEGATE_TOKEN: "secret" };
const host = await startHost(POLICIES, { env });
after(() => host.stop());
const of = (policy, options) => new RemoteLimiter({ url: host.url, policy, token: "secret", deadline: "30s", ...options });
const FIELDS = ["ratelimit", "ratelimit-policy", "retry-after", "content-type", "cache-control"];

/** Without what passes between two answers: the seconds until a window ends, in a header or in a sentence. */
const withoutSpans = (text) => text?.replace(/\b(t|reset)=\d+/g, "$1").replace(/\d+ (µs|s)$/, "$1");

/** What a server answers to a user, without spans and times. */
async function ask(port, user = "alice", cost = 1) {
  const response = await fetch(`http://127.0.0.1:${port}/`, { headers: { "x-user": user, "x-cost": String(cost) } });
  const headers = FIELDS.map((name) => withoutSpans(response.headers.get(name)));
  if (response.status === 200) return [200, await response.text(), ...headers.slice(0, 2)];
  const { retry_after_us, detail, ...problem } = await response.json();
  assert.equal(retry_after_us === undefined, headers[2] === undefined);
  if (headers[2] !== undefined) assert.match(headers[2], /^\d+$/);
  return [response.status, problem, withoutSpans(detail), headers.toSpliced(2, 1)];
}

const servers = frameworks();
/** The function `key` of each framework gets what the framework calls its middleware with. */
const header = (name) => (request) => {
  const { headers } = request.req?.raw ?? request.req ?? request;
  return typeof headers.get === "function" ? headers.get(name) : headers[name];
};
const options = { key: header("x-user"), cost: (request) => Number(header("x-cost")(request)) };

for (const [framework, listener] of Object.entries(servers)) {
  test(`${framework}: the same requests get the same answers`, async (t) => {
    const answer = async () => "hello";
    const start = async (limiter) => serve(t, await listener(limiter, options, answer));
    const [memory, remote] = [await start(new Limiter(toml(POLICIES), { policy: "api" })), await start(of("api"))];
    const alice = `alice/${framework}`;
    for (const [user, cost] of [[alice, 1], [alice, 3], [alice, 2], [alice, 0], [alice, 1], [alice, 6], ["mallory", 1], ["root", 9], ["", 1], ["x".repeat(513), 1], ["ip:x", 1]]) {
      assert.deepEqual(await ask(remote, user, cost), await ask(memory, user, cost), `${user.slice(0, 40)}, ${cost}`);
    }
  });
}

test("a server that is away: the request passes or gets 503, as the option says", async (t) => {
  const away = (onError) => of("api", { url: "http://127.0.0.1:1", onError });
  const statuses = await Promise.all(["open", "closed"].map(async (onError) => {
    const port = await serve(t, await servers.express(away(onError), options, async () => "hello"));
    return ask(port, "alice", 1);
  }));
  assert.deepEqual(statuses[0], [200, "hello", undefined, undefined]);
  assert.deepEqual(statuses[1].slice(0, 3), [503, {
    type: "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity", title: "Temporarily reduced capacity", status: 503,
  }, "the rate limit cannot be asked"]);
});

test("what is set up wrongly is an error of the application, and no answer of the client's", async (t) => {
  for (const limiter of [of("none"), of("api", { token: "wrong" }), [of("plans"), of("api")]]) {
    const port = await serve(t, await servers.fetch(limiter, options, async () => "hello"));
    const { status } = await fetch(`http://127.0.0.1:${port}/`, { headers: { "x-user": "alice", "x-cost": "1" } });
    assert.equal(status, 500);
  }
});

test("a limiter in memory before one at a server: if the server refuses, the units come back", async (t) => {
  const memory = new Limiter({ limits: [{ algorithm: "fixed_window", limit: 50, period: "36500d" }] });
  const port = await serve(t, await servers.koa([memory, of("api")], options, async () => "hello"));
  assert.equal((await ask(port, "both", 5))[0], 200);
  assert.equal((await ask(port, "both", 1))[0], 429);
  assert.equal(memory.peek("both").remaining, 45);
});

test("limiters at servers before others: if one refuses, units, leases and reservations come back", async (t) => {
  const memory = new Limiter({ limits: [{ algorithm: "fixed_window", limit: 2, period: "36500d" }] });
  const [api, jobs] = [of("api"), of("jobs")];
  const port = await serve(t, await servers.express([api, jobs, memory], { key: () => "undone" }, async () => "hello"));
  for (let time = 0; time < 2; time++) assert.equal((await ask(port)).at(0), 200);
  assert.equal((await ask(port)).at(0), 429);
  assert.equal((await api.peek("undone")).remaining, 3, "two requests have passed");
  const headers = (await fetch(`http://127.0.0.1:${port}/`)).headers.get("ratelimit-policy");
  assert.equal(headers, '"policy";q=2;w=3153600000', "the refusal is that of the last");
  const last = await serve(t, await servers.express([memory, of("plans")], { key: () => "last" }, async () => "hello"));
  assert.equal((await ask(last)).at(0), 200, "payers may stand last");
  const free = async () => (await jobs.peek("undone", { cost: 1 })).allowed;
  await until(free); // each lease is released
});

test("a lease is held until the response has ended, and what the handler gives back is back at once", async (t) => {
  const [jobs, api] = [of("jobs"), of("api")];
  let passed;
  const holding = new Promise((resolve) => { passed = resolve; });
  let release;
  const released = new Promise((resolve) => { release = resolve; });
  const port = await serve(t, await servers.hono(jobs, { key: () => "held" }, async () => (passed(), released)));
  const first = fetch(`http://127.0.0.1:${port}/`);
  await holding;
  const second = await fetch(`http://127.0.0.1:${port}/`);
  assert.deepEqual([second.status, second.headers.get("ratelimit-policy")], [429, '"jobs";q=1;qu="concurrent-requests"']);
  release("hello");
  assert.equal(await (await first).text(), "hello");
  const free = async () => (await jobs.peek("held", { cost: 1 })).allowed;
  await until(free);

  const giving = await serve(t, await servers.next(api, { key: () => "given", cost: 2 }, async (_, granted) => {
    const { keys, remaining } = granted;
    await granted.giveBack();
    return JSON.stringify([keys, remaining, (await api.peek("given")).remaining]);
  }));
  assert.equal(await (await fetch(`http://127.0.0.1:${giving}/`)).text(), '[["given"],3,5]');
});

test("the true cost that the response tells is committed, and what does not count comes back", async (t) => {
  const [tokens, api] = [of("tokens", { metering }), of("api")];
  const used = await serve(t, await servers.express(tokens, { key: () => "used", cost: 50, actual: { bytes: 1 } }, async () => "seven b"));
  const failed = await serve(t, await servers.koa([api, tokens], { key: () => "failed", cost: 50, countIf: { status: "500-599" } }, async () => "hello"));
  const left = (key, expected) => until(async () => (await tokens.peek(key)).remaining === expected);
  await (await fetch(`http://127.0.0.1:${used}/`)).text();
  await left("used", 93);
  await (await fetch(`http://127.0.0.1:${failed}/`)).text();
  await left("failed", 100);
  assert.equal((await api.peek("failed")).remaining, 4, "it took the cost of its policy, and no estimate");
  const without = await serve(t, await servers.fetch(of("api", { metering }), { key: () => "k", actual: 1 }, async () => "hello"));
  assert.equal((await fetch(`http://127.0.0.1:${without}/`)).status, 500, "a policy without reservations");
});

test("an older form of the headers is that of the limiter in memory", async (t) => {
  for (const headers of ["draft-7", "draft-6", "x-ratelimit"]) {
    const all = await Promise.all([new Limiter(toml(POLICIES), { policy: "api" }), of("api")].map(async (limiter) => {
      const port = await serve(t, await servers.koa(limiter, { key: () => headers, headers }, async () => "hello"));
      const response = await fetch(`http://127.0.0.1:${port}/`);
      return [...response.headers].filter(([name]) => name.includes("ratelimit")).map(([name, value]) => [name, /reset/.test(name) ? "" : withoutSpans(value)]);
    }));
    assert.ok(all[0].length > 1, headers);
    assert.deepEqual(all[1], all[0]);
  }
  const port = await serve(t, await servers.fetch(of("api"), { key: () => "k", headers: "draft-1" }, async () => "hello"));
  assert.equal((await fetch(`http://127.0.0.1:${port}/`)).status, 500);
});

test("options that only a limiter with the policy has are refused", async () => {
  const { rateLimit } = await load("tidegate/express");
  const memory = new Limiter(toml(POLICIES), { policy: "api" });
  const { key } = options;
  for (const [limiters, given, message] of [
    [of("api"), {}, /^`options.key`: expected a function/],
    [of("tokens"), { key, actual: 1 }, /^`options.metering` of the RemoteLimiter: expected `metering` of `tidegate`/],
    [of("tokens", { metering }), { key, actual: { weight: 1 } }, /^`options.actual`/],
    [of("api"), { key, keys: 1 }, /found `keys`$/],
  ]) {
    assert.throws(() => rateLimit(limiters, given), { code: "INVALID_OPTION", message });
  }
});

test("a request on which no server has decided is told to `onError`", async () => {
  const { rateLimit } = await load("tidegate/fetch");
  for (const [onError, status] of [["open", 200], ["closed", 503]]) {
    const told = [];
    const away = of("api", { onError, fetch: async () => { throw new Error("no route"); } });
    const handle = rateLimit(away, () => new Response("hello"), { key: () => "a", onError: (error) => told.push(error.message) });
    for (const _ of [1, 2]) assert.equal((await handle(new Request("http://localhost/"))).status, status);
    assert.deepEqual(told, ["server: no route", "server: no route"]);
  }
});
