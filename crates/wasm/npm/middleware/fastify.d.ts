/**
 * Middleware for Fastify. Its limiter comes from `tidegate/toml`, `tidegate/redis` or `tidegate/remote`.
 *
 * @module tidegate/fastify
 */

import type { Limiters, MiddlewareOptions } from "./options.js";

export type { Admission, AnyLimiter, CountIf, KeyOf, Limiters, MiddlewareOptions, OlderHeaders, Store, Term, Terms } from "./options.js";

/** A hook for Fastify: `onRequest`, or a later one whose requests have what `key` and `cost` read. */
export function rateLimit(
  limiter: Limiters,
  options?: MiddlewareOptions<[request: any, reply: any]>,
): (request: any, reply: any) => Promise<any>;
export default rateLimit;
