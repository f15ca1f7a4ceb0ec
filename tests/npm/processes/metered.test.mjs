// Costs that only the response tells: a handler that answers as a language model does, behind the middleware of each framework.
import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import { createRequire } from "node:module";
import { test } from "node:test";
import { getRequestListener } from "@hono/node-server";
import { Hono } from "hono";
import Koa from "koa";

import { frameworks, serve } from "../frameworks.mjs";
import { load } from "../installed.mjs";
import { until } from "../waiting.mjs";

const require = createRequire(import.meta.url);
const [express, fastify] = [require("express"), require("fastify")];
const { Limiter } = await load();
const rateLimit = async (name) => (await load(`tidegate/${name}`)).rateLimit;

const BUDGET = 100_000;
/** The second limit refuses nobody: it counts what is charged, also above the first. */
const limiter = () => new Limiter({
  limits: [
    { name: "budget", algorithm: "fixed_window", limit: BUDGET, period: "36500d" },
    { name: "ledger", algorithm: "fixed_window", limit: 1e12, period: "36500d" },
  ],
  reservations: { most: 1_000 },
});
const charged = (of) => 1e12 - of.peek("alice").limits[1].remaining;

const TOTAL = { field: "usage.total_tokens" };
const words = (total) => [
  ...'data: {"choices":[{"delta":{"content":"\\"total_tokens\\":9}"}}],"usage":null}\n\n'.match(/.{1,9}|\n/gs),
  `data: {"choices":[],"usage":{"total_to`, `kens":${total}`, `}}\r\n\r\ndata: [DONE]\n\n`,
];
const json = (total) => JSON.stringify({ choices: [{ message: { content: '"usage":{"total_tokens":1}' } }], usage: { total_tokens: total } });

/** A server of each framework whose handler streams, or answers in JSON, or fails. `model` returns what an answer uses. */
const servers = {
  async express(of, options, model) {
    const app = express();
    app.use((await rateLimit("express"))(of, options));
    app.get("/stream", async (request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      for (const word of words(model(request.query.max))) {
        response.write(word);
        await new Promise(setImmediate);
      }
      response.end();
    });
    app.get("/json", (request, response) => response.type("json").send(json(model(request.query.max))));
    app.get("/broken", (request, response) => response.type("json").write('{"usage":{"total_tok', () => response.destroy()));
    app.get("/fails", (request, response) => response.status(503).end());
    return app;
  },
  async fastify(of, options, model) {
    const app = fastify();
    app.addHook("onRequest", (await rateLimit("fastify"))(of, options));
    app.get("/stream", ({ query }, reply) => reply.type("text/event-stream").send(streamOf(words(model(query.max)))));
    app.get("/json", ({ query }, reply) => reply.type("application/json").send(json(model(query.max))));
    app.get("/broken", (request, reply) => reply.type("application/json").send(streamOf(['{"usage":{"tot'], new Error("away"))));
    app.get("/fails", (request, reply) => reply.code(503).send());
    await app.ready();
    return app.routing;
  },
  async koa(of, options, model) {
    const app = new Koa();
    app.silent = true;
    app.use((await rateLimit("koa"))(of, options));
    app.use(async (context) => {
      const { path, query } = context;
      if (path === "/fails") context.status = 503;
      else if (path === "/stream") [context.type, context.body] = ["text/event-stream", (await nodeStream())(words(model(query.max)))];
      else if (path === "/broken") [context.type, context.body] = ["json", (await nodeStream())(['{"usage":{"tot'], new Error("away"))];
      else [context.type, context.body] = ["json", json(model(query.max))];
    });
    return app.callback();
  },
  async fetch(of, options, model) {
    return getRequestListener((await rateLimit("fetch"))(of, answerOf(model), options), { overrideGlobalObjects: false });
  },
  async next(of, options, model) {
    return getRequestListener((await rateLimit("next"))(of, answerOf(model), options), { overrideGlobalObjects: false });
  },
  async hono(of, options, model) {
    const app = new Hono();
    app.use((await rateLimit("hono"))(of, options));
    app.all("*", (context) => answerOf(model)(context.req.raw));
    return getRequestListener(app.fetch, { overrideGlobalObjects: false });
  },
};

const nodeStream = async () => {
  const { Readable } = await import("node:stream");
  return (all, error) => Readable.from(pieces(all, error), { objectMode: false });
};
async function* pieces(all, error) {
  for (const piece of all) {
    yield Buffer.from(piece);
    await new Promise(setImmediate);
  }
  if (error !== undefined) throw error;
}
const streamOf = (all, error) => ReadableStream.from(pieces(all, error));
const answerOf = (model) => async ({ url }) => {
  const { pathname, searchParams } = new URL(url);
  const type = (name) => ({ headers: { "content-type": name } });
  switch (pathname) {
    case "/stream": return new Response(streamOf(words(model(searchParams.get("max")))), type("text/event-stream"));
    case "/broken": return new Response(streamOf(['{"usage":{"tot'], new Error("away")), type("application/json"));
    case "/fails": return new Response(null, { status: 503 });
    default: return new Response(json(model(searchParams.get("max"))), type("application/json"));
  }
};

/** The estimate of a request is in its URL. */
const cost = (request) => Number(new URL((request.req ?? request).url ?? request.raw.url, "http://h").searchParams.get("max") ?? 1_000);
const options = { key: () => "alice", cost, actual: TOTAL, countIf: { status: "200-299" } };

/** The status and the text of a response, as far as it came. */
async function ask(port, path) {
  const request = http.request({ port, host: "127.0.0.1", path, agent: false }).end();
  const [response] = await once(request, "response");
  let text = "";
  try {
    for await (const chunk of response) text += chunk;
  } catch { /* it broke off */ }
  return [response.statusCode, text];
}

for (const framework of Object.keys(servers)) {
  const start = async (t, of, rest = {}, model = () => 1_212) => serve(t, await servers[framework](of, { ...options, ...rest }, model));

  test(`${framework}: 64 clients are charged what the model says, and never above the budget`, async (t) => {
    const of = limiter();
    let [sent, calls] = [0, 0];
    const model = (max) => {
      const total = 1 + ((calls++ * 7_919) % Number(max));
      sent += total;
      return total;
    };
    const port = await start(t, of, {}, model);
    const client = async (number) => {
      for (let refused = 0; refused < 3;) {
        const [status, text] = await ask(port, `/${number % 2 === 0 ? "stream" : "json"}?max=${500 + number}`);
        if (status === 429) refused += 1;
        else assert.match(text, number % 2 === 0 ? /\[DONE\]\n\n$/ : /\}$/);
      }
    };
    await Promise.all(Array.from({ length: 64 }, (_, number) => client(number)));
    await until(() => charged(of) === sent);
    assert.ok(sent <= BUDGET && sent > BUDGET - 64 * 564, `${sent}`);
  });

  test(`${framework}: the cost is that of the response`, async (t) => {
    const of = limiter();
    const port = await start(t, of);
    assert.deepEqual(await ask(port, "/json"), [200, json(1_212)]);
    await until(() => charged(of) === 1_212);
    assert.deepEqual(await ask(port, "/stream"), [200, words(1_212).join("")]);
    await until(() => charged(of) === 2_424);
    assert.equal((await ask(port, "/fails"))[0], 503);
    await until(() => charged(of) === 2_424);
    await ask(port, "/broken").catch(() => {});
    await until(() => charged(of) === 3_424);
  });

  test(`${framework}: only failures count`, async (t) => {
    const of = limiter();
    const port = await start(t, of, { cost: 1, actual: undefined, countIf: { status: [401, "500-599"] } });
    await ask(port, "/json");
    await until(() => charged(of) === 0);
    await ask(port, "/fails");
    await until(() => charged(of) === 1);
  });
}

for (const framework of ["express", "fastify", "fetch", "hono", "koa", "next"]) {
  test(`${framework}: the handler says the true cost, and the last word counts`, async (t) => {
    const of = limiter();
    const said = { "/": [42], "/twice": [9, 3], "/nothing": [0], "/silent": [], "/back": [7] };
    const answer = async (path, granted) => {
      for (const units of said[path]) granted.commit(units);
      assert.equal(charged(of) >= 1_000, true, "the estimate is reserved until the response has passed");
      if (path === "/back") await granted.giveBack();
      return "hello";
    };
    const port = await serve(t, await frameworks()[framework](of, { key: () => "alice", cost: 1_000, countIf: { status: "100-599" } }, answer));
    for (const [path, sum] of [["/", 42], ["/twice", 45], ["/nothing", 45], ["/silent", 1_045], ["/back", 1_045]]) {
      assert.deepEqual(await ask(port, path), [200, "hello"]);
      await until(() => charged(of) === sum);
    }
  });
}

test("the true cost of a handler is a whole number, of a request that reserves, under each limiter that does", async () => {
  const limited = async (of, options, act) => (await rateLimit("fetch"))(of, ({ rateLimit }) => (act(rateLimit), new Response("hello")), { key: () => "alice", ...options });
  const of = limiter();
  const reserved = { cost: 5, countIf: { status: "100-599" } };
  for (const wrong of [-1, 0.5, NaN, "7", undefined, 2 ** 53]) {
    const called = await limited(of, reserved, ({ commit }) => assert.throws(() => commit(wrong), { name: "TypeError", code: "INVALID_REQUEST", message: `\`actual\`: expected a whole number from 0 to 9007199254740991, found ${String(wrong)}` }));
    await (await called(new Request("http://x/"))).text();
  }
  await until(() => charged(of) === 30);
  const plain = new Limiter({ limits: [{ algorithm: "fixed_window", limit: 5, period: "1h" }] });
  const without = { name: "TypeError", code: "INVALID_REQUEST", message: "`commit`: expected `actual` or `countIf` in the options of the middleware, found neither" };
  await (await limited(plain, {}, ({ commit }) => assert.throws(() => commit(1), without)))(new Request("http://x/"));
  const [one, other] = [limiter(), limiter()];
  await (await (await limited([one, plain, other], reserved, ({ commit }) => commit(3)))(new Request("http://x/"))).text();
  for (const each of [one, other]) await until(() => charged(each) === 3);
});

test("a client that leaves pays the estimate, or what was seen", async (t) => {
  for (const [ifUnknown, expected] of [["estimate", 1_000], ["seen", 0]]) {
    const of = limiter();
    const app = express();
    app.use((await rateLimit("express"))(of, { ...options, ifUnknown }));
    app.use((request, response) => response.type("text/event-stream").write("data: {}\n\n"));
    const port = await serve(t, app);
    const request = http.request({ port, host: "127.0.0.1", agent: false }).end();
    await once(request, "response");
    assert.equal(of.peek("alice").remaining, BUDGET - 1_000, "the estimate is held");
    request.destroy();
    await until(() => charged(of) === expected);
    assert.equal(of.peek("alice").remaining, BUDGET - expected);
  }
});

test("a request that is not counted has nothing to commit", async (t) => {
  const of = new Limiter({ limits: [{ algorithm: "fixed_window", limit: 9_000, period: "1d" }], reservations: {}, allow: ["alice"] });
  const app = express();
  app.use((await rateLimit("express"))(of, options));
  app.use((request, response) => response.send("hello"));
  assert.deepEqual(await ask(await serve(t, app), "/"), [200, "hello"]);
  assert.equal(of.size, 0);
});

test("a store is asked to reserve and to commit", async (t) => {
  const calls = [];
  const store = {
    check: async (...call) => (calls.push(call), { headers: [], reservation: { id: "r1", units: 700 } }),
    renew: async () => true,
    release: async (...call) => calls.push(call),
    commit: async (...call) => calls.push(call),
  };
  const app = express();
  app.use((await rateLimit("express"))(limiter(), { ...options, store }));
  app.use((request, response) => response.json({ usage: { total_tokens: 5 } }));
  await ask(await serve(t, app), "/");
  while (calls.length < 2) await new Promise(setImmediate);
  assert.deepEqual(calls, [["alice", { cost: 1_000, headers: undefined, reserves: true }], ["alice", "r1", 5]]);
});

test("mistakes in the options are named", async () => {
  const limit = await rateLimit("express");
  const error = (rest, of = limiter()) => {
    try {
      limit(of, rest);
    } catch ({ code, message }) {
      return [code, message];
    }
  };
  const path = "expected the path of a field such as \"usage.total_tokens\" in at most 128 bytes, found \"\"";
  for (const [rest, message] of [
    [{ actual: { field: "" } }, `\`options.actual.field\`: ${path}`],
    [{ actual: { felid: "a" } }, "`options.actual.felid`: expected one of `header`, `field`, `bytes`, `times`, `weight`, `otherwise`; found the field \"felid\""],
    [{ actual: () => 5 }, "`options.actual`: expected what JSON can write, found a function"],
    [{ countIf: { status: "4xx" } }, "`options.countIf.status`: expected a status such as 401, or a range of them such as \"500-599\"; found the string \"4xx\""],
    [{ ifUnknown: "seen" }, "`options`: `if_unknown`: expected `actual` beside it, found none"],
    [{ actual: TOTAL, store: { check() {}, renew() {}, release() {} } }, "`options.store.commit`: expected a function, found undefined"],
  ]) assert.deepEqual(error(rest), ["INVALID_OPTION", message]);
  const plain = new Limiter({ limits: [{ algorithm: "fixed_window", limit: 9, period: "1d" }] });
  const without = "`options`: expected a policy with `reservations` beside `actual` and `countIf`, found \"policy\", which has none";
  assert.deepEqual(error({ actual: TOTAL }, plain), ["INVALID_OPTION", without]);
});
