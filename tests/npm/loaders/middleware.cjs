// The program of a user who requires the middleware. Each framework answers two requests, of which the second is refused.
const assert = require("node:assert/strict");
const { createServer } = require("node:http");
const express = require("express");
const fastify = require("fastify");
const { getRequestListener } = require("@hono/node-server");
const { Hono } = require("hono");
const Koa = require("koa");
const { Limiter } = require("tidegate");

const FRAMEWORKS = {
  express(rateLimit) {
    return express().use(rateLimit, (request, response) => response.send("hello"));
  },
  async fastify(rateLimit) {
    const app = fastify();
    app.addHook("onRequest", rateLimit);
    app.get("/", async () => "hello");
    await app.ready();
    return app.routing;
  },
  fetch: getRequestListener,
  hono: (rateLimit) => getRequestListener(new Hono().use(rateLimit).get("/", (context) => context.text("hello")).fetch),
  koa: (rateLimit) => new Koa().use(rateLimit).use((context) => { context.body = "hello"; }).callback(),
  next: getRequestListener,
};

async function main() {
  const names = [];
  for (const [name, listener] of Object.entries(FRAMEWORKS)) {
    const { rateLimit, default: preferred, ...others } = require(`tidegate/${name}`);
    assert.equal(preferred, rateLimit);
    assert.deepEqual(Object.keys(others), name === "fetch" ? ["MemoryStore"] : []);
    const limiter = new Limiter({ limits: [{ algorithm: "fixed_window", limit: 1, period: "1h" }] });
    const handler = ["fetch", "next"].includes(name) ? [async () => new Response("hello")] : [];
    const server = createServer(await listener(rateLimit(limiter, ...handler, { key: () => "user:42" })));
    await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
    const ask = () => fetch(`http://127.0.0.1:${server.address().port}/`);
    assert.equal(await (await ask()).text(), "hello");
    assert.equal((await ask()).status, 429);
    server.closeAllConnections();
    server.close();
    names.push(name);
  }
  console.log(names.join(" "));
}
main();
