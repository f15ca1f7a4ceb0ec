import type { RedisLimiter } from "tidegate/redis";
import * as memory from "../upstash.js";

export type { Algorithm, Duration, LimitOptions, RatelimitResponse } from "../upstash.js";

/** The options of a limiter in Redis. */
export interface RatelimitConfig extends Omit<memory.RatelimitConfig, "redis" | "timeout" | "maxBytes"> {
  /** A client that the caller has made, and closes. */
  redis: ConstructorParameters<typeof RedisLimiter>[1];
  /** The milliseconds after which a request without an answer passes; with 0 none passes, and it fails after 250 ms. Default: 5,000. */
  timeout?: number;
}

/**
 * A limiter with the calls of @upstash/ratelimit in Redis, which all processes share that have the same prefix and algorithm. A request
 * is one operation in Redis; with `dynamicLimits` another operation reads the limit first. If Redis fails, a promise is rejected with a
 * `LimiterError`.
 */
export class Ratelimit extends memory.Limiting {
  /** Makes a limiter. */
  constructor(config: RatelimitConfig);
  /** Windows that begin at the same time for all identifiers. A refused request counts. */
  static fixedWindow(tokens: number, window: memory.Duration): memory.Algorithm;
  /** A window that moves: the requests of the last aligned window count by the part that it still covers. */
  static slidingWindow(tokens: number, window: memory.Duration): memory.Algorithm;
  /** A bucket of up to `maxTokens`, which gets `refillRate` tokens at each multiple of the interval since the Unix epoch. */
  static tokenBucket(refillRate: number, interval: memory.Duration, maxTokens: number): memory.Algorithm;
}

/** Not here: regions that count apart grant more than the limit. Making one fails and says so. */
export class MultiRegionRatelimit {
  /** Fails with `INVALID_REQUEST`. */
  constructor(...config: any[]);
}
