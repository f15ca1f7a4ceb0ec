/** What actions are counted by. A number and its text are the same id. */
export type Id = number | string;
/** A span in milliseconds. */
export type Milliseconds = number & {
  /** The unit, for the compiler only. */
  __brand: "milliseconds";
};
/** A span in microseconds. */
export type Microseconds = number & {
  /** The unit, for the compiler only. */
  __brand: "microseconds";
};

/** The options of a limiter. */
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

/** What became of an action, or would become of it. */
export interface RateLimitInfo {
  /** Whether the action was blocked. */
  blocked: boolean;
  /** Whether there were too many actions in the interval. */
  blockedDueToCount: boolean;
  /** Whether the last action was too recent. */
  blockedDueToMinDifference: boolean;
  /** The time until another action would be allowed. */
  millisecondsUntilAllowed: Milliseconds;
  /** The actions that are left in the interval. */
  actionsRemaining: number;
}

/** What limiters have in common, whatever keeps their state. */
export class RateLimiter {
  constructor(options: RateLimiterOptions);
  /** The length of the window. */
  readonly interval: Microseconds;
  /** The most actions in a window. */
  readonly maxInInterval: number;
  /** The least time between two actions. */
  readonly minDifference: Microseconds;
  /** Attempts an action, and returns whether it was blocked. */
  limit(id: Id): Promise<boolean>;
  /** Returns whether an action would be blocked. */
  wouldLimit(id: Id): Promise<boolean>;
  /** Attempts an action, and returns what became of it and when the next one would be allowed. */
  limitWithInfo(id: Id): Promise<RateLimitInfo>;
  /** Returns what would become of an action. */
  wouldLimitWithInfo(id: Id): Promise<RateLimitInfo>;
  /** Forgets the actions of an id. */
  clear(id: Id): Promise<void>;
}

/** A limiter in the memory of this process. Actions that were blocked count, too. No timer runs. */
export class InMemoryRateLimiter extends RateLimiter {}
