// The entry `tidegate/redis`.
export { ArgumentError, FullError, LimiterError, PolicyError, RedisLimiter, RedisLimiter as default } from "./all.js";
