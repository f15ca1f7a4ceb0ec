export type Id = number | string;
export type Milliseconds = number & { __brand: "milliseconds" };
export type Microseconds = number & { __brand: "microseconds" };

export interface RateLimiterOptions {
  /** The length of the window in milliseconds. */
  interval: number;
  /** The most actions in a window: a whole number up to 1,000. */
  maxInInterval: number;
  /** The least time between two actions in milliseconds. */
  minDifference?: number;
  /** The most bytes that the ids in use may take. Default: 256 MiB. */
  maxBytes?: number;
}

export interface RateLimitInfo {
  blocked: boolean;
  blockedDueToCount: boolean;
  blockedDueToMinDifference: boolean;
  /** The time until another action would be allowed. */
  millisecondsUntilAllowed: Milliseconds;
  actionsRemaining: number;
}

/** What limiters have in common, whatever keeps their state. */
export class RateLimiter {
  constructor(options: RateLimiterOptions);
  interval: Microseconds;
  maxInInterval: number;
  minDifference: Microseconds;
  /** Attempts an action, and returns whether it was blocked. */
  limit(id: Id): Promise<boolean>;
  /** Returns whether an action would be blocked. */
  wouldLimit(id: Id): Promise<boolean>;
  limitWithInfo(id: Id): Promise<RateLimitInfo>;
  wouldLimitWithInfo(id: Id): Promise<RateLimitInfo>;
  clear(id: Id): Promise<void>;
}

/** A limiter in the memory of this process. Actions that were blocked count, too. No timer runs. */
export class InMemoryRateLimiter extends RateLimiter {}

declare const classes: { RateLimiter: typeof RateLimiter; InMemoryRateLimiter: typeof InMemoryRateLimiter };
export default classes;
