// The entry `tidegate`, as `index.js` of the package.
export { ArgumentError, FullError, Limiter, Limiter as default, LimiterError, PolicyError, Reporter, metering } from "./all.js";
