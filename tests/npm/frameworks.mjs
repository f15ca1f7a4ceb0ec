// A server of each framework with the same handler behind its middleware.
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { getRequestListener } from "@hono/node-server";
import Koa from "koa";
import { Hono } from "hono";
import { load } from "./installed.mjs";

const require = createRequire(import.meta.url);
const express = require("express");
const fastify = require("fastify");

const ipOf = (request, { incoming }) => incoming.socket.remoteAddress;

/**
 * Each framework's listener for `node:http`. `answer(path, granted)` returns a promise of the text to answer. `granted` is what the
 * middleware tells the handler.
 */
export function frameworks() {
  const rateLimit = async (name) => (await load(`tidegate/${name}`)).rateLimit;
  const fetched = (name) => async (limiter, options, answer) => {
    const handler = async ({ url, rateLimit }) => new Response(await answer(new URL(url).pathname, rateLimit));
    const limited = (await rateLimit(name))(limiter, handler, { ip: ipOf, ...options });
    return getRequestListener(limited, { overrideGlobalObjects: false });
  };
  const hono = async (limiter, options, answer) => {
    const app = new Hono();
    app.use((await rateLimit("hono"))(limiter, options));
    app.all("*", async (context) => context.text(await answer(context.req.path, context.get("rateLimit"))));
    return app;
  };
  return {
    async express(limiter, options, answer, prepare = () => {}) {
      const app = express();
      prepare(app);
      app.use("/", (await rateLimit("express"))(limiter, options));
      app.use(async ({ path, rateLimit }, response) => response.send(await answer(path, rateLimit)));
      return app;
    },
    async fastify(limiter, options, answer) {
      const app = fastify();
      app.addHook("onRequest", (await rateLimit("fastify"))(limiter, options));
      app.all("/*", async ({ url, rateLimit }) => answer(url.split("?")[0], rateLimit));
      await app.ready();
      return app.routing;
    },
    fetch: fetched("fetch"),
    async hono(limiter, options, answer) {
      const { fetch } = await hono(limiter, options, answer);
      return getRequestListener(fetch, { overrideGlobalObjects: false });
    },
    async "hono elsewhere than on Node"(limiter, options, answer) {
      const ip = ({ env }) => env.address;
      const { fetch } = await hono(limiter, { ip, ...options }, answer);
      const fetchElsewhere = (request, { incoming }) => fetch(request, { address: incoming.socket.remoteAddress });
      return getRequestListener(fetchElsewhere, { overrideGlobalObjects: false });
    },
    async koa(limiter, options, answer, prepare = () => {}) {
      const app = new Koa();
      prepare(app);
      app.use((await rateLimit("koa"))(limiter, options));
      app.use(async (context) => {
        context.body = await answer(context.path, context.state.rateLimit);
      });
      return app.callback();
    },
    next: fetched("next"),
  };
}

/** Serves on a free port of this machine until the test ends. */
export async function serve(t, listener) {
  const server = createServer(listener);
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return server.address().port;
}
