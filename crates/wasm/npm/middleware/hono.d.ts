/**
 * Middleware for Hono. Its limiter comes from `tidegate/toml`, `tidegate/redis` or `tidegate/remote`.
 *
 * @module tidegate/hono
 */

import type { Limiters, MiddlewareOptions } from "./options.js";

export type { Admission, AnyLimiter, CountIf, KeyOf, Limiters, MiddlewareOptions, OlderHeaders, Store, Term, Terms } from "./options.js";

/** Middleware for Hono. On Node the address of the client is known; elsewhere `options.ip` must say where it is. */
export function rateLimit(
  limiter: Limiters,
  options?: MiddlewareOptions<[context: any]>,
): (context: any, next: () => Promise<void>) => Promise<any>;
export default rateLimit;
