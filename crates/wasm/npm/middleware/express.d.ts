/**
 * Middleware for Express.
 * It takes a limiter of `tidegate`, `tidegate/redis`, `tidegate/durable-objects` or `tidegate/remote`.
 *
 * @module tidegate/express
 */

// @ts-ignore a program without the types of Express has requests of any type
import type { Request, Response } from "express";

import type { Limiters, LimitersOf, MiddlewareOptions } from "./options.js";

export type { Admission, AnyLimiter, CountIf, KeyOf, Limiters, MiddlewareOptions, OlderHeaders, Store, Term, Terms } from "./options.js";
export type { Granted, LimitersOf, Told } from "./options.js";

/** Middleware for Express, and for other servers that call `(request, response, next)`. */
export function rateLimit<Asked = Request, Answer = Response>(
  limiter: Limiters | LimitersOf<[request: Asked, response: Answer]>,
  options?: MiddlewareOptions<[request: Asked, response: Answer]>,
): (request: any, response: any, next: (error?: any) => void) => void;
export default rateLimit;
