/**
 * Middleware for Fastify.
 * It takes a limiter of `tidegate`, `tidegate/redis`, `tidegate/durable-objects` or `tidegate/remote`.
 *
 * @module tidegate/fastify
 */

// @ts-ignore a program without the types of Fastify has requests of any type
import type { FastifyReply, FastifyRequest } from "fastify";

import type { Limiters, LimitersOf, MiddlewareOptions } from "./options.js";

export type { Admission, AnyLimiter, CountIf, KeyOf, Limiters, MiddlewareOptions, OlderHeaders, Store, Term, Terms } from "./options.js";
export type { Granted, LimitersOf, Told } from "./options.js";

/** A hook for Fastify: `onRequest`, or a later one whose requests have what `key` and `cost` read. */
export function rateLimit<Asked = FastifyRequest, Answer = FastifyReply>(
  limiter: Limiters | LimitersOf<[request: Asked, reply: Answer]>,
  options?: MiddlewareOptions<[request: Asked, reply: Answer]>,
): (request: any, reply: any) => Promise<any>;
export default rateLimit;
