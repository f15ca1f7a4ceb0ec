// The entry of the limiter that asks a server. It has no WebAssembly, and runs wherever there is `fetch`.
export { ArgumentError, FullError, LimiterError, PolicyError } from "../errors.js";
export { RemoteLimiter, RemoteLimiter as default } from "../remote/limiter.js";
