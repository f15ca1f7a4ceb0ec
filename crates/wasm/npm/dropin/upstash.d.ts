type Unit = "ms" | "s" | "m" | "h" | "d" | "w";
export type Duration = `${number} ${Unit}` | `${number}${Unit}`;

declare const kind: unique symbol;
/** What `Ratelimit.fixedWindow`, `slidingWindow` or `tokenBucket` returns. */
export interface Algorithm {
  readonly [kind]: "algorithm";
}

export interface RatelimitConfig {
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
  /** Ignored: nothing is sent. */
  enableTelemetry?: boolean;
  dynamicLimits?: false;
  /** The most bytes that the identifiers in use may take. Default: 256 MiB. */
  maxBytes?: number;
}

export interface LimitOptions {
  geo?: { country?: string; city?: string; region?: string; ip?: string };
  /** The tokens to take; below 0 to give tokens back. Default: 1. */
  rate?: number;
  ip?: string;
  userAgent?: string;
  country?: string;
}

export interface RatelimitResponse {
  success: boolean;
  limit: number;
  remaining: number;
  /** The time at which tokens come back, in milliseconds since the Unix epoch. */
  reset: number;
  /** Nothing is pending. */
  pending: Promise<unknown>;
  reason?: "timeout" | "cacheBlock" | "denyList";
  deniedValue?: string;
}

/** A limiter with the calls of @upstash/ratelimit, in the memory of this process. */
export class Ratelimit {
  constructor(config: RatelimitConfig);
  static fixedWindow(tokens: number, window: Duration): Algorithm;
  static slidingWindow(tokens: number, window: Duration): Algorithm;
  static tokenBucket(refillRate: number, interval: Duration, maxTokens: number): Algorithm;
  limit: (identifier: string, req?: LimitOptions) => Promise<RatelimitResponse>;
  /** Waits until a request passes, or until the timeout in milliseconds. */
  blockUntilReady: (identifier: string, timeout: number) => Promise<RatelimitResponse>;
  resetUsedTokens: (identifier: string) => Promise<void>;
  getRemaining: (identifier: string) => Promise<{ remaining: number; reset: number; limit: number }>;
}
