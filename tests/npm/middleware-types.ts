// Compiled, never run: what the middleware must accept, and what it must not.
import { Limiter } from "tidegate/toml";
import { rateLimit as express } from "tidegate/express";
import type { Store } from "tidegate/express";
import fastify from "tidegate/fastify";
import { MemoryStore, rateLimit as fetched } from "tidegate/fetch";
import { rateLimit as hono } from "tidegate/hono";
import { rateLimit as koa } from "tidegate/koa";
import { rateLimit as next } from "tidegate/next";

const limiter = new Limiter({ limits: [{ algorithm: "fixed_window", limit: 5, period: "1m" }] });
const store: Store = new MemoryStore(limiter);

express(limiter, { key: (request) => request.user, cost: 2, headers: "draft-6", store, onError: console.error });
fastify(limiter, { cost: async (request) => request.body.length });
hono(limiter, { ip: (context) => context.env.address });
koa(limiter);

interface Info {
  address: string;
}
const handler = async (request: Request, info: Info) => new Response(info.address);
const limited: (request: Request, info: Info) => Promise<Response> = fetched(limiter, handler, {
  ip: (_, info) => info.address,
});
next(limiter, async (request: Request) => new Response(await request.text()));
const found = limiter.keyOf({ header: () => undefined, query: "", ip: "192.0.2.1" });
const status: number | undefined = typeof found === "string" ? limiter.admit(found).refusal?.status : 400;

// @ts-expect-error there is no such form
express(limiter, { headers: "draft-5" });
// @ts-expect-error a handler is needed
fetched(limiter, { cost: 2 });
// @ts-expect-error an address is a text
koa(limiter, { ip: () => 5 });
