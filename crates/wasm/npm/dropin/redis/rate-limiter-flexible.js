// The classes of rate-limiter-flexible, with those that count in Redis.
import memory from "../rate-limiter-flexible.js";
import { RateLimiterRedis } from "./flexible.js";

export * from "../rate-limiter-flexible.js";
export { RateLimiterRedis };
/** As Node imports theirs, which is CommonJS. */
export default { ...memory, RateLimiterRedis };
