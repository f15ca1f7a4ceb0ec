// The tests compile this file and never run it. A request has the type of its framework, or the one that a function names.
import { Limiter } from "tidegate";
import { rateLimit as express } from "tidegate/express";
import { rateLimit as fastify } from "tidegate/fastify";
import { rateLimit as hono } from "tidegate/hono";

const limiter = new Limiter({ limits: [{ algorithm: "fixed_window", limit: 5, period: "1m" }] });

express(limiter, { key: (request) => request.get("x-user"), skip: (request, response) => request.path === "/" || response.headersSent });
express((request) => (request.method === "POST" ? [limiter, limiter] : limiter));
fastify(limiter, { key: (request) => request.ip, cost: async (request, reply) => request.url.length + reply.statusCode });
hono(limiter, { key: (context) => context.get("user") ?? context.req.header("x-user") });
// @ts-expect-error a request of Express has no such field
express(limiter, { key: (request) => request.usr });
// @ts-expect-error a request of Express has no such field
express((request) => request.limiter);
// @ts-expect-error a request of Fastify has no such field
fastify(limiter, { key: (request) => request.usr });
// @ts-expect-error a context of Hono has no such field
hono(limiter, { key: (context) => context.request });

interface WithUser {
  user: { id: string };
}
express(limiter, { key: ({ user }: WithUser) => user.id, ip: (request) => request.user.id });
fastify(limiter, { key: ({ user }: WithUser) => user.id });
hono((context: WithUser) => (context.user.id === "admin" ? [limiter, limiter] : limiter));
