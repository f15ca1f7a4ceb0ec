// What each entry exports. An entry differs from the others only in how it gets the module of WebAssembly.
export { ArgumentError, FullError, LimiterError, PolicyError } from "./errors.js";
export { Limiter, Limiter as default } from "./limiter.js";
export { metering } from "./metering.js";
export { Reporter } from "./reporter.js";
