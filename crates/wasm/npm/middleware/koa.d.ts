/**
 * Middleware for Koa. Its limiter comes from `tidegate/toml`, `tidegate/redis` or `tidegate/remote`.
 *
 * @module tidegate/koa
 */

import type { Limiters, MiddlewareOptions } from "./options.js";

export type { Admission, AnyLimiter, CountIf, KeyOf, Limiters, MiddlewareOptions, OlderHeaders, Store, Term, Terms } from "./options.js";

/** Middleware for Koa. */
export function rateLimit(
  limiter: Limiters,
  options?: MiddlewareOptions<[context: any]>,
): (context: any, next: () => Promise<any>) => Promise<any>;
export default rateLimit;
