import type { RedisLimiter } from "tidegate/redis";
import type { CountingStore } from "../express-rate-limit.js";

export * from "../express-rate-limit.js";

/** The options of a store in Redis. */
export interface RedisStoreOptions {
  /** A client that the caller has made, and closes. */
  client: ConstructorParameters<typeof RedisLimiter>[1];
  /** A text before each key. Default: `rl:`. */
  prefix?: string;
}

/** The options of a store in Redis, as `rate-limit-redis` calls them. */
export type Options = RedisStoreOptions;

/**
 * A store for express-rate-limit in Redis, in place of that of `rate-limit-redis`. All processes share the hits that have the same
 * prefix and `windowMs`. Windows begin at the first request of a client.
 *
 * Each method rejects with a `LimiterError` `UNAVAILABLE` if Redis does not answer within 250 ms; express-rate-limit then goes by
 * `passOnStoreError`.
 */
export class RedisStore {
  /** Makes a store for one limiter. */
  constructor(options: RedisStoreOptions);
  /** Tells express-rate-limit that other stores may count the same keys. */
  readonly localKeys: boolean;
}

/** The calls that both stores have. */
export interface RedisStore extends CountingStore {}

export default RedisStore;
