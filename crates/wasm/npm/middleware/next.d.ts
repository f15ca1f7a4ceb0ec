/**
 * Middleware for route handlers and the proxy of Next.js.
 * It takes a limiter of `tidegate`, `tidegate/redis`, `tidegate/durable-objects` or `tidegate/remote`.
 *
 * @module tidegate/next
 */

export type { Admission, AnyLimiter, CountIf, KeyOf, Limiters, MiddlewareOptions, OlderHeaders, Store, Term, Terms } from "./options.js";
export type { Granted, LimitersOf, Told } from "./options.js";
export type { Limited } from "./fetch.js";
export { rateLimit, rateLimit as default } from "./fetch.js";
