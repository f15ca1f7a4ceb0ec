// Route handlers and the proxy of Next.js take a `Request` and return a `Response`.
export { rateLimit, rateLimit as default } from "./fetch.js";
