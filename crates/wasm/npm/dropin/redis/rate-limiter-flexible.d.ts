import type { RedisLimiter } from "tidegate/redis";
import { RateLimiterAbstract } from "../rate-limiter-flexible.js";
import type { IRateLimiterOptions } from "../rate-limiter-flexible.js";

export * from "../rate-limiter-flexible.js";

/** The options of a limiter whose state is in a store. */
export interface IRateLimiterStoreOptions extends Omit<IRateLimiterOptions, "maxBytes"> {
  /** A client that the caller has made, and closes. */
  storeClient: ConstructorParameters<typeof RedisLimiter>[1];
  /** The consumed points from which on a key is refused without asking Redis: until its window ends, or for `inMemoryBlockDuration`. */
  inMemoryBlockOnConsumed?: number;
  /** The seconds for which a key is refused without asking Redis. */
  inMemoryBlockDuration?: number;
  /** The consumed points from which on `blockDuration` applies. Default: more than `points`. */
  blockOnConsumed?: number;
}

/** The options of a limiter in Redis. */
export interface IRateLimiterRedisOptions extends IRateLimiterStoreOptions {
  /** Ignored: an answer comes within 250 ms, or an error. */
  rejectIfRedisNotReady?: boolean;
  /** Ignored: a client is known by its shape. */
  useRedisPackage?: boolean;
  /** Ignored: a client is known by its shape. */
  useRedis3AndLowerPackage?: boolean;
}

/**
 * A limiter in Redis, which all processes share that have the same `keyPrefix` and `duration`. A request is one operation in Redis. If
 * Redis does not answer within 250 ms, the `insuranceLimiter` answers; without one the promise is rejected with a `LimiterError`.
 */
export class RateLimiterRedis extends RateLimiterAbstract {
  /** Makes a limiter. */
  constructor(opts: IRateLimiterRedisOptions);
  /** The client. */
  readonly client: ConstructorParameters<typeof RedisLimiter>[1];
  /** The consumed points from which on `blockDuration` applies; 0 for more than `points`. */
  blockOnConsumed: number;
  /** The consumed points from which on a key is refused without asking Redis; 0 for none. */
  inMemoryBlockOnConsumed: number;
  /** The seconds for which a key is refused without asking Redis; 0 until its window ends. */
  inMemoryBlockDuration: number;
  /** The milliseconds for which a key is refused without asking Redis. */
  get msInMemoryBlockDuration(): number;
  /** The milliseconds for which a key with its prefix is still refused without asking Redis. */
  getInMemoryBlockMsBeforeExpire(rlKey: string): number;
  /** Lets Redis decide again on all keys. */
  deleteInMemoryBlockedAll(): void;
}
