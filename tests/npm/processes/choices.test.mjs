// What middleware may be told about a request: its limiter, whether it counts, what the client is told, and what the handler gets.
import assert from "node:assert/strict";
import { test } from "node:test";

import { frameworks, serve } from "../frameworks.mjs";
import { load } from "../installed.mjs";

const { Limiter } = await load();
const { rateLimit } = await load("tidegate/fetch");

const servers = frameworks();
const window = (limit, name) => new Limiter({ policies: { [name]: { limits: [{ algorithm: "fixed_window", limit, period: "1h", start: "first" }] } } });
const jobs = () => new Limiter({ limits: [{ algorithm: "concurrency", capacity: 1, time_to_live: "30s" }] });

/** A server of the framework in front of a handler, and a function that asks it. */
async function start(t, framework, limiter, options, answer = async () => "hello") {
  const port = await serve(t, await servers[framework](limiter, { key: () => "k", ...options }, answer));
  return async (path = "/") => {
    const response = await fetch(`http://127.0.0.1:${port}${path}`, { headers: { connection: "close" } });
    return { status: response.status, body: await response.text(), headers: response.headers };
  };
}

/** The path of a request in the arguments that the framework gives to functions. */
const pathOf = (first) => (first.req?.path ?? first.path ?? first.url).replace(/^http:\/\/[^/]+/, "");

for (const framework of Object.keys(servers)) {
  test(`${framework}: a function chooses the limiter of a request`, async (t) => {
    const [free, pro] = [window(1, "free"), window(3, "pro")];
    const both = [free, pro];
    const choose = async (request) => ({ "/free": free, "/pro": pro, "/both": both })[pathOf(request)];
    const ask = await start(t, framework, choose);
    assert.equal((await ask("/pro")).headers.get("ratelimit-policy"), '"pro";q=3;w=3600');
    assert.equal((await ask("/both")).headers.get("ratelimit-policy"), '"free";q=1;w=3600, "pro";q=3;w=3600');
    assert.deepEqual([(await ask("/free")).status, (await ask("/pro")).status, (await ask("/pro")).status], [429, 200, 429]);
    assert.equal((await ask("/unknown")).status, 500);
  });

  test(`${framework}: a request that is skipped is not counted, and has no headers`, async (t) => {
    const ask = await start(t, framework, window(1, "api"), { skip: async (request) => pathOf(request) === "/healthz" });
    for (const path of ["/healthz", "/", "/healthz", "/"]) {
      const { status, headers } = await ask(path);
      assert.equal(headers.has("ratelimit"), path === "/", path);
      if (path === "/healthz") assert.equal(status, 200);
    }
    assert.equal((await ask("/")).status, 429);
  });

  test(`${framework}: a function changes what the client is told`, async (t) => {
    const respond = async ({ headers, refusal }) => {
      if (refusal === undefined) return { headers: [["x-left", "some"]] };
      return { headers, refusal: { status: 420, body: "slow down" } };
    };
    const ask = await start(t, framework, window(1, "api"), { respond });
    const granted = await ask();
    assert.deepEqual([granted.status, granted.headers.get("x-left"), granted.headers.has("ratelimit")], [200, "some", false]);
    const { status, body, headers } = await ask();
    assert.deepEqual([status, body, headers.get("retry-after"), headers.get("content-type")], [420, "slow down", "3600", "text/plain; charset=utf-8"]);
  });
}

for (const framework of ["express", "fastify", "fetch", "hono", "koa", "next"]) {
  test(`${framework}: the handler knows what was granted, and can give it back`, async (t) => {
    const limiter = window(3, "api");
    const answer = async (path, granted) => {
      if (path === "/fails") for (let time = 0; time < 2; time++) await granted.giveBack();
      return `${granted.keys}: ${granted.remaining}`;
    };
    const ask = await start(t, framework, limiter, {}, answer);
    for (const path of ["/", "/fails", "/fails", "/"]) assert.equal((await ask(path)).body, path === "/" ? `k: ${limiter.peek("k").remaining}` : "k: 1");
    assert.equal(limiter.peek("k").remaining, 1);
  });

  test(`${framework}: what the handler gives back of several limiters, and of a lease, is back at once`, async (t) => {
    const [minute, places] = [window(3, "minute"), jobs()];
    const seen = [];
    const answer = async (path, granted) => {
      await granted.giveBack();
      seen.push(granted.keys, minute.peek("k").remaining, places.acquire("k", { lease: "another's" }).allowed);
      return "hello";
    };
    const ask = await start(t, framework, [minute, places], {}, answer);
    assert.equal((await ask()).status, 200);
    assert.deepEqual(seen, [["k", "k"], 3, true]);
    assert.equal(places.renew("k", "another's").live, true);
  });
}

test("a refusal stays one, and what throws keeps no lease", async () => {
  const request = new Request("http://x/");
  const key = () => "k";
  const refused = rateLimit(window(1, "api"), () => new Response("hello"), { key, respond: () => ({ refusal: undefined }) });
  assert.deepEqual([(await refused(request)).status, (await refused(request)).status], [200, 429]);
  const unchanged = rateLimit(window(1, "api"), () => new Response("hello"), { key, respond() {} });
  assert.equal((await unchanged(request)).headers.get("ratelimit"), '"api";r=0;t=3600');
  const told = { headers: [["content-type", "application/problem+json"]], refusal: { status: 420, body: "{}" } };
  const typed = rateLimit(window(1, "api"), () => new Response("hello"), { key, respond: () => told });
  await typed(request);
  assert.equal((await typed(request)).headers.get("content-type"), "application/problem+json");
  const places = jobs();
  const failing = rateLimit(places, () => assert.fail("it must not be called"), { key, respond() { throw new Error("its own"); } });
  for (let time = 0; time < 2; time++) await assert.rejects(failing(request), { message: "its own" });
  assert.equal(places.acquire("k").allowed, true);
});

test("options that a prototype has, and parts of an answer, are not read", async (t) => {
  t.after(() => ["skip", "respond", "refusal", "granted"].forEach((name) => delete Object.prototype[name]));
  const limited = rateLimit(window(1, "api"), () => new Response("hello"), { key: () => "k" });
  Object.prototype.skip = () => true;
  Object.prototype.respond = () => ({ headers: [] });
  const later = rateLimit(window(1, "api"), () => new Response("hello"), { key: () => "k" });
  for (const each of [limited, later]) {
    const answers = [await each(new Request("http://x/")), await each(new Request("http://x/"))];
    assert.deepEqual(answers.map(({ status, headers }) => [status, headers.has("ratelimit")]), [[200, true], [429, true]]);
  }
  Object.prototype.refusal = { status: 500, body: "" };
  const skipped = rateLimit(window(1, "api"), () => new Response("hello"), { skip: () => true });
  assert.equal((await skipped(new Request("http://x/"))).status, 200);
});

test("an option that is no function, and a function that chooses no limiter, are refused", async () => {
  const limiter = window(1, "api");
  for (const name of ["skip", "respond"]) {
    assert.throws(() => rateLimit(limiter, () => {}, { [name]: true }), { code: "INVALID_OPTION", message: `\`options.${name}\`: expected a function, found a boolean` });
  }
  for (const chosen of [undefined, null, "pro", {}, []]) {
    await assert.rejects(rateLimit(() => chosen, () => {})(new Request("http://x/")), { name: "TypeError", message: /^`limiter`: expected a Limiter/ });
  }
});
