import type { RedisLimiter } from "tidegate/redis";
import { RateLimiter } from "../rolling-rate-limiter.js";
import type { Id, RateLimiterOptions } from "../rolling-rate-limiter.js";

export * from "../rolling-rate-limiter.js";

/** The options of a limiter in Redis. */
export interface RedisRateLimiterOptions extends Omit<RateLimiterOptions, "maxBytes"> {
  /** A client that the caller has made, and closes. */
  client: ConstructorParameters<typeof RedisLimiter>[1];
  /** A text before each id. */
  namespace: string;
}

/** What the limiters in Redis have in common. A promise is rejected with a `LimiterError` if Redis does not answer within 250 ms. */
declare class BaseRedisRateLimiter extends RateLimiter {
  /** Makes a limiter, which shares its actions with all processes of the same `namespace`, `interval` and `maxInInterval`. */
  constructor(options: RedisRateLimiterOptions);
  /** The client. */
  readonly client: ConstructorParameters<typeof RedisLimiter>[1];
  /** The text before each id. */
  readonly namespace: string;
  /** The id with its namespace. */
  makeKey(id: Id): string;
}

/** A limiter in Redis by a client of `redis`. */
export class NodeRedisRateLimiter extends BaseRedisRateLimiter {}

/** A limiter in Redis by a client of `ioredis`. */
export class IORedisRateLimiter extends BaseRedisRateLimiter {}

/** A limiter in Redis by any client that `RedisLimiter` of `tidegate/redis` takes. */
export class RedisRateLimiter extends BaseRedisRateLimiter {
  /** Which client a value is. */
  static determineRedisClientType(client: any): "node-redis" | "ioredis" | null;
  /** Which client the limiter has; `null` for one of another package. */
  readonly detectedClientType: "node-redis" | "ioredis" | null;
}
