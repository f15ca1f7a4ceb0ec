/**
 * Middleware for Koa.
 * It takes a limiter of `tidegate`, `tidegate/redis`, `tidegate/durable-objects` or `tidegate/remote`.
 *
 * @module tidegate/koa
 */

// @ts-ignore a program without the types of Koa has requests of any type
import type { Context } from "koa";

import type { Limiters, LimitersOf, MiddlewareOptions } from "./options.js";

export type { Admission, AnyLimiter, CountIf, KeyOf, Limiters, MiddlewareOptions, OlderHeaders, Store, Term, Terms } from "./options.js";
export type { Granted, LimitersOf, Told } from "./options.js";

/** Middleware for Koa. */
export function rateLimit<Asked = Context>(
  limiter: Limiters | LimitersOf<[context: Asked]>,
  options?: MiddlewareOptions<[context: Asked]>,
): (context: any, next: () => Promise<any>) => Promise<any>;
export default rateLimit;
