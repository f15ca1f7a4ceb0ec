/**
 * Middleware for Hono.
 * It takes a limiter of `tidegate`, `tidegate/redis`, `tidegate/durable-objects` or `tidegate/remote`.
 *
 * @module tidegate/hono
 */

// @ts-ignore a program without the types of Hono has requests of any type
import type { Context } from "hono";

import type { Limiters, LimitersOf, MiddlewareOptions } from "./options.js";

export type { Admission, AnyLimiter, CountIf, KeyOf, Limiters, MiddlewareOptions, OlderHeaders, Store, Term, Terms } from "./options.js";
export type { Granted, LimitersOf, Told } from "./options.js";

/** Middleware for Hono. On Node the address of the client is known; elsewhere `options.ip` must say where it is. */
export function rateLimit<Asked = Context>(
  limiter: Limiters | LimitersOf<[context: Asked]>,
  options?: MiddlewareOptions<[context: Asked]>,
): (context: any, next: () => Promise<void>) => Promise<any>;
export default rateLimit;
