/**
 * Middleware for route handlers and the proxy of Next.js. Its limiter comes from `tidegate/toml`, `tidegate/redis` or `tidegate/remote`.
 *
 * @module tidegate/next
 */

export type { Admission, AnyLimiter, CountIf, KeyOf, Limiters, MiddlewareOptions, OlderHeaders, Store, Term, Terms } from "./options.js";
export type { Granted, LimitersOf, Told } from "./options.js";
export { rateLimit, rateLimit as default } from "./fetch.js";
