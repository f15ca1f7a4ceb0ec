/** The fields of a result. */
export interface IRateLimiterRes {
  /** Milliseconds until the window ends. */
  msBeforeNext?: number;
  /** The points that are left. */
  remainingPoints?: number;
  /** The points that were consumed. */
  consumedPoints?: number;
  /** Whether the call began the window. */
  isFirstInDuration?: boolean;
}

/** What a key has left. Promises are resolved and rejected with it. */
export class RateLimiterRes {
  /** Makes a result. */
  constructor(remainingPoints?: number, msBeforeNext?: number, consumedPoints?: number, isFirstInDuration?: boolean);
  /** Milliseconds until the window ends; -1 if it never does. */
  readonly msBeforeNext: number;
  /** The points that are left. */
  readonly remainingPoints: number;
  /** The points that were consumed. */
  readonly consumedPoints: number;
  /** Whether the call began the window. */
  readonly isFirstInDuration: boolean;
  /** The fields as JSON. */
  toString(): string;
  /** The fields as a plain object. */
  toJSON(): Required<IRateLimiterRes>;
}

/** What points are counted by. */
type Key = string | number;
/** `customDuration`: the seconds of a window that this call begins. */
type CallOptions = { [key: string]: any };

/** What a class needs to be used as a limiter. */
export class RateLimiterCompatibleAbstract {
  /** The text before each key. */
  readonly keyPrefix: string;
  /** The seconds for which a key is refused that has consumed too much. */
  blockDuration: number;
  /** Whether requests are delayed so that they spread over a window. */
  execEvenly: boolean;
  /** Takes points. The promise is rejected with a `RateLimiterRes` beyond the limiter's points. */
  consume(key: Key, pointsToConsume?: number, options?: CallOptions): Promise<RateLimiterRes>;
  /** Takes points, however many are left. */
  penalty(key: Key, points?: number, options?: CallOptions): Promise<RateLimiterRes>;
  /** Gives points back. */
  reward(key: Key, points?: number, options?: CallOptions): Promise<RateLimiterRes>;
  /** What a key has left, or `null` if it has no window. */
  get(key: Key, options?: CallOptions): Promise<RateLimiterRes | null>;
  /** Sets the consumed points of a key for some seconds; for ever if they are 0. */
  set(key: Key, points: number, secDuration: number, options?: CallOptions): Promise<RateLimiterRes>;
  /** Refuses a key for some seconds; for ever if they are 0. */
  block(key: Key, secDuration: number, options?: CallOptions): Promise<RateLimiterRes>;
  /** Forgets a key, and returns whether it had a window. */
  delete(key: Key, options?: CallOptions): Promise<boolean>;
}

/** A limiter, of this package or of another one. */
export type RateLimiterLike = RateLimiterAbstract | RateLimiterCompatibleAbstract;

/** The options of a limiter. */
export interface IRateLimiterOptions {
  /** A text before each key. Default: `rlflx`. */
  keyPrefix?: string;
  /** The most points of a window. */
  points: number;
  /** Seconds; 0 for windows that never end. */
  duration: number;
  /** Whether requests are delayed so that they spread over a window. */
  execEvenly?: boolean;
  /** The least delay in milliseconds. Default: the window divided by the points. */
  execEvenlyMinDelayMs?: number;
  /** The seconds for which a key is refused that has consumed too much. */
  blockDuration?: number;
  /** Answers when this limiter has no room for a key. */
  insuranceLimiter?: RateLimiterLike;
  /** The most bytes that the keys in use may take. Default: 256 MiB. */
  maxBytes?: number;
}

/** The options of a limiter, and the names of its keys. */
export class RateLimiterAbstract extends RateLimiterCompatibleAbstract {
  /** Makes a limiter. */
  constructor(opts: IRateLimiterOptions);
  /** The most points of a window. */
  points: number;
  /** The seconds of a window; 0 if it never ends. */
  duration: number;
  /** The milliseconds of a window. */
  get msDuration(): number;
  /** The milliseconds of a block. */
  get msBlockDuration(): number;
  /** The least delay with `execEvenly` in milliseconds. */
  execEvenlyMinDelayMs: number;
  /** The text before each key. */
  keyPrefix: string;
  /** Answers when this limiter has no room for a key. */
  insuranceLimiter?: RateLimiterLike;
  /** The key with its prefix. */
  getKey(key: Key): string;
  /** The key without its prefix. */
  parseKey(rlKey: string): string;
}

/** A limiter in the memory of this process. No timer runs, except with `execEvenly`. */
export class RateLimiterMemory extends RateLimiterAbstract {}

/** Consumes of several limiters at once. The results are those of each limiter by its prefix. */
export class RateLimiterUnion {
  /** Joins at least one limiter. */
  constructor(...limiters: RateLimiterLike[]);
  /** Takes points of all limiters. If some refuse, the promise is rejected with their results. */
  consume(key: Key, points?: number): Promise<Record<string, RateLimiterRes>>;
}

/** The options of a limiter behind lists. */
export interface IRLWrapperBlackAndWhiteOptions {
  /** The limiter of the keys that are on no list. */
  limiter: RateLimiterLike;
  /** Keys that never pass. */
  blackList?: string[] | number[];
  /** Keys that always pass. */
  whiteList?: string[] | number[];
  /** Whether a key never passes. */
  isBlackListed?(key: any): boolean;
  /** Whether a key always passes. */
  isWhiteListed?(key: any): boolean;
  /** Whether the limiter counts the keys on lists, too. */
  runActionAnyway?: boolean;
}

/** A limiter behind lists of keys that always pass or never pass. */
export class RLWrapperBlackAndWhite extends RateLimiterCompatibleAbstract {
  /** Puts lists before a limiter. */
  constructor(opts: IRLWrapperBlackAndWhiteOptions);
  /** The limiter of the keys that are on no list. */
  limiter: RateLimiterLike;
  /** Keys that never pass. */
  blackList: string[] | number[];
  /** Keys that always pass. */
  whiteList: string[] | number[];
  /** Whether a key never passes. */
  isBlackListed: (key: any) => boolean;
  /** Whether a key always passes. */
  isWhiteListed: (key: any) => boolean;
  /** Whether the limiter counts the keys on lists, too. */
  runActionAnyway: boolean;
}

/** The options of a limiter with a deadline. */
export interface IRLWrapperTimeoutsOptions extends Omit<IRateLimiterOptions, "points" | "duration" | "maxBytes"> {
  /** The limiter that may take too long. */
  limiter: RateLimiterLike;
  /** How long it may take in milliseconds. Default: 0. */
  timeoutMs?: number;
}

/** A limiter with a deadline. If its limiter takes longer or fails, the `insuranceLimiter` answers, by default that of its limiter. */
export class RLWrapperTimeouts extends RateLimiterAbstract {
  /** Puts a deadline before a limiter. */
  constructor(opts: IRLWrapperTimeoutsOptions);
  /** The limiter that may take too long. */
  limiter: RateLimiterLike;
  /** How long it may take in milliseconds. */
  timeoutMs: number;
}

/** The options of a queue. */
export interface IRateLimiterQueueOpts {
  /** The most requests that may wait on a key. Default: 2^32 − 1. */
  maxQueueSize?: number;
}

/** Lets requests wait until their tokens are there, in the order of their calls. */
export class RateLimiterQueue {
  /** Makes a queue before a limiter. */
  constructor(limiterFlexible: RateLimiterLike | BurstyRateLimiter, opts?: IRateLimiterQueueOpts);
  /** The tokens that a key has left. */
  getTokensRemaining(key?: Key): Promise<number>;
  /**
   * Waits until the tokens are there, takes them, and returns how many are left.
   *
   * @param expiresUnixAt the second since the Unix epoch at which the request gives up; 0 for never
   */
  removeTokens(tokens: number, key?: Key, expiresUnixAt?: number): Promise<number>;
}

/** Why a request does not wait any more. */
export class RateLimiterQueueError extends Error {
  /** Makes an error. */
  constructor(message?: string, extra?: string);
  /** More about it. */
  readonly extra: string;
}

/** A limiter, and another one for bursts beyond it. */
export class BurstyRateLimiter {
  /** Joins two limiters. */
  constructor(rateLimiter: RateLimiterLike, burstLimiter: RateLimiterLike);
  /** The points of the first limiter. */
  readonly points: number;
  /** Takes points of the first limiter, and if it refuses of the other one. */
  consume(key: Key, pointsToConsume?: number, options?: CallOptions): Promise<RateLimiterRes>;
  /** What a key has left of the first limiter. */
  get(key: Key): Promise<RateLimiterRes | null>;
}
