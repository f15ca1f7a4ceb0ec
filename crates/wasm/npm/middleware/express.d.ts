/**
 * Middleware for Express. Its limiter comes from `tidegate/toml`, `tidegate/redis` or `tidegate/remote`.
 *
 * @module tidegate/express
 */

import type { Limiters, MiddlewareOptions } from "./options.js";

export type { Admission, AnyLimiter, CountIf, KeyOf, Limiters, MiddlewareOptions, OlderHeaders, Store, Term, Terms } from "./options.js";

/** Middleware for Express, and for other servers that call `(request, response, next)`. */
export function rateLimit(
  limiter: Limiters,
  options?: MiddlewareOptions<[request: any, response: any]>,
): (request: any, response: any, next: (error?: any) => void) => void;
export default rateLimit;
