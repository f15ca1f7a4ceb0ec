/**
 * Middleware for route handlers and the proxy of Next.js. Its limiter comes from `tidegate/toml`.
 *
 * @module tidegate/next
 */

export * from "./fetch.js";
export { default } from "./fetch.js";
