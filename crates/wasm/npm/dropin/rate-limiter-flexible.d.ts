export interface IRateLimiterRes {
  msBeforeNext?: number;
  remainingPoints?: number;
  consumedPoints?: number;
  isFirstInDuration?: boolean;
}

/** What a key has left. Promises are resolved and rejected with it. */
export class RateLimiterRes {
  constructor(remainingPoints?: number, msBeforeNext?: number, consumedPoints?: number, isFirstInDuration?: boolean);
  /** Milliseconds until the window ends; -1 if it never does. */
  readonly msBeforeNext: number;
  readonly remainingPoints: number;
  readonly consumedPoints: number;
  readonly isFirstInDuration: boolean;
  toString(): string;
  toJSON(): { remainingPoints: number; msBeforeNext: number; consumedPoints: number; isFirstInDuration: boolean };
}

type Key = string | number;
/** `customDuration`: the seconds of a window that this call begins. */
type CallOptions = { [key: string]: any };

/** What a class needs to be used as a limiter. */
export class RateLimiterCompatibleAbstract {
  readonly keyPrefix: string;
  blockDuration: number;
  execEvenly: boolean;
  /** Takes points. The promise is rejected with a `RateLimiterRes` beyond the limiter's points. */
  consume(key: Key, pointsToConsume?: number, options?: CallOptions): Promise<RateLimiterRes>;
  penalty(key: Key, points?: number, options?: CallOptions): Promise<RateLimiterRes>;
  reward(key: Key, points?: number, options?: CallOptions): Promise<RateLimiterRes>;
  get(key: Key, options?: CallOptions): Promise<RateLimiterRes | null>;
  set(key: Key, points: number, secDuration: number, options?: CallOptions): Promise<RateLimiterRes>;
  block(key: Key, secDuration: number, options?: CallOptions): Promise<RateLimiterRes>;
  delete(key: Key, options?: CallOptions): Promise<boolean>;
}

export type RateLimiterLike = RateLimiterAbstract | RateLimiterCompatibleAbstract;

export interface IRateLimiterOptions {
  keyPrefix?: string;
  points: number;
  /** Seconds; 0 for windows that never end. */
  duration: number;
  execEvenly?: boolean;
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
  constructor(opts: IRateLimiterOptions);
  points: number;
  duration: number;
  get msDuration(): number;
  get msBlockDuration(): number;
  execEvenlyMinDelayMs: number;
  keyPrefix: string;
  insuranceLimiter?: RateLimiterLike;
  getKey(key: Key): string;
  parseKey(rlKey: string): string;
}

/** A limiter in the memory of this process. No timer runs, except with `execEvenly`. */
export class RateLimiterMemory extends RateLimiterAbstract {}

/** Consumes of several limiters at once. The results are those of each limiter by its prefix. */
export class RateLimiterUnion {
  constructor(...limiters: RateLimiterLike[]);
  consume(key: Key, points?: number): Promise<Record<string, RateLimiterRes>>;
}

export interface IRLWrapperBlackAndWhiteOptions {
  limiter: RateLimiterLike;
  blackList?: string[] | number[];
  whiteList?: string[] | number[];
  isBlackListed?(key: any): boolean;
  isWhiteListed?(key: any): boolean;
  runActionAnyway?: boolean;
}

/** A limiter behind lists of keys that always pass or never pass. */
export class RLWrapperBlackAndWhite extends RateLimiterCompatibleAbstract {
  constructor(opts: IRLWrapperBlackAndWhiteOptions);
  limiter: RateLimiterLike;
  blackList: string[] | number[];
  whiteList: string[] | number[];
  isBlackListed: (key: any) => boolean;
  isWhiteListed: (key: any) => boolean;
  runActionAnyway: boolean;
}

export interface IRateLimiterQueueOpts {
  maxQueueSize?: number;
}

/** Lets requests wait until their tokens are there, in the order of their calls. */
export class RateLimiterQueue {
  constructor(limiterFlexible: RateLimiterLike | BurstyRateLimiter, opts?: IRateLimiterQueueOpts);
  getTokensRemaining(key?: Key): Promise<number>;
  /** @param expiresUnixAt the second since the Unix epoch at which the request gives up; 0 for never */
  removeTokens(tokens: number, key?: Key, expiresUnixAt?: number): Promise<number>;
}

export class RateLimiterQueueError extends Error {
  constructor(message?: string, extra?: string);
  readonly extra: string;
}

/** A limiter, and another one for bursts beyond it. */
export class BurstyRateLimiter {
  constructor(rateLimiter: RateLimiterLike, burstLimiter: RateLimiterLike);
  readonly points: number;
  consume(key: Key, pointsToConsume?: number, options?: CallOptions): Promise<RateLimiterRes>;
  get(key: Key): Promise<RateLimiterRes | null>;
}

declare const classes: {
  BurstyRateLimiter: typeof BurstyRateLimiter;
  RateLimiterAbstract: typeof RateLimiterAbstract;
  RateLimiterCompatibleAbstract: typeof RateLimiterCompatibleAbstract;
  RateLimiterMemory: typeof RateLimiterMemory;
  RateLimiterQueue: typeof RateLimiterQueue;
  RateLimiterQueueError: typeof RateLimiterQueueError;
  RateLimiterRes: typeof RateLimiterRes;
  RateLimiterUnion: typeof RateLimiterUnion;
  RLWrapperBlackAndWhite: typeof RLWrapperBlackAndWhite;
};
export default classes;
