/** The units of spans: milliseconds to weeks. */
type Unit = "ms" | "s" | "m" | "h" | "d" | "w";
/** A span such as `"10 s"` or `"1m"`. */
export type Duration = `${number} ${Unit}` | `${number}${Unit}`;

/** The algorithms of this entry. */
declare const kind: unique symbol;
/** What `Ratelimit.fixedWindow`, `slidingWindow` or `tokenBucket` returns. `TContext` is theirs, and says nothing here. */
export interface Algorithm<TContext = unknown> {
  /** Tells algorithms from other values. */
  readonly [kind]: "algorithm";
}

/** The options of a limiter. */
export interface RatelimitConfig {
  /** How requests are limited. */
  limiter: Algorithm;
  /** Ignored: the state is in the memory of this process, and belongs to this object. */
  redis?: unknown;
  /** A text before each identifier. Default: `@upstash/ratelimit`. */
  prefix?: string;
  /** A map for the identifiers that are refused until a time, or `false` for none. Default: a map of up to 10,000. */
  ephemeralCache?: Map<string, number> | false;
  /** Ignored: memory answers at once. */
  timeout?: number;
  /** Ignored: nothing is recorded. */
  analytics?: boolean;
  /** Whether identifiers, addresses, agents and countries on `denyList` are refused. */
  enableProtection?: boolean;
  /** Needed with `enableProtection`, because the list of Upstash's dashboard is in Redis. */
  denyList?: Iterable<string>;
  /** Ignored: no list is fetched. */
  denyListThreshold?: number;
  /** Ignored: there are no scripts. */
  cacheScripts?: boolean;
  /** Ignored: nothing is sent. */
  enableTelemetry?: boolean;
  /** Whether `setDynamicLimit` may set the tokens. Default: `false`. */
  dynamicLimits?: boolean;
  /** The most bytes that the identifiers in use may take. Default: 256 MiB. */
  maxBytes?: number;
}

/** What is known of a request. */
export interface LimitOptions {
  /** Ignored: nothing is recorded. */
  geo?: object;
  /** The tokens to take; below 0 to give tokens back. Default: 1. */
  rate?: number;
  /** The address of the client, for `denyList`. */
  ip?: string;
  /** The client's agent, for `denyList`. */
  userAgent?: string;
  /** The country of the client, for `denyList`. */
  country?: string;
}

/** The answer to a request. */
export interface RatelimitResponse {
  /** Whether the request may pass. */
  success: boolean;
  /** The tokens of the algorithm. */
  limit: number;
  /** The tokens that are left. */
  remaining: number;
  /** The time at which tokens come back, in milliseconds since the Unix epoch. */
  reset: number;
  /** Nothing is pending. */
  pending: Promise<unknown>;
  /** Why the request was refused, if it was not counted: a block until `reset`, or a denied value. */
  reason?: "timeout" | "cacheBlock" | "denyList";
  /** The value on `denyList`. */
  deniedValue?: string;
}

/** The calls of a limiter. */
declare class Limiting {
  /** Decides on a request. */
  limit: (identifier: string, req?: LimitOptions) => Promise<RatelimitResponse>;
  /** Waits until a request passes, or until the timeout in milliseconds. */
  blockUntilReady: (identifier: string, timeout: number) => Promise<RatelimitResponse>;
  /** Forgets an identifier. */
  resetUsedTokens: (identifier: string) => Promise<void>;
  /** The tokens that are left, and takes none. */
  getRemaining: (identifier: string) => Promise<Pick<RatelimitResponse, "remaining" | "reset" | "limit">>;
  /**
   * Sets the tokens in place of those of the algorithm, up to 2^20; `false` goes back to them. What identifiers have used stays used.
   *
   * @throws {ArgumentError} `INVALID_REQUEST` without `dynamicLimits`
   */
  setDynamicLimit: (options: { limit: number | false }) => Promise<void>;
  /**
   * The tokens that `setDynamicLimit` has set.
   *
   * @throws {ArgumentError} `INVALID_REQUEST` without `dynamicLimits`
   */
  getDynamicLimit: () => Promise<{
    /** The tokens; `null` if those of the algorithm hold. */
    dynamicLimit: number | null;
  }>;
}

/** A limiter with the calls of @upstash/ratelimit, in the memory of this process. */
export class Ratelimit extends Limiting {
  /** Makes a limiter, whose state belongs to it alone. */
  constructor(config: RatelimitConfig);
  /** Windows that begin at the same time for all identifiers. A refused request counts. */
  static fixedWindow(tokens: number, window: Duration): Algorithm;
  /** A window that moves: the requests of the last aligned window count by the part that it still covers. */
  static slidingWindow(tokens: number, window: Duration): Algorithm;
  /** A bucket of up to `maxTokens`, which gets `refillRate` tokens after each interval from the first request on. */
  static tokenBucket(refillRate: number, interval: Duration, maxTokens: number): Algorithm;
}
