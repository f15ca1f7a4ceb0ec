/// <reference lib="esnext.disposable" />

/** A limit: how much, how fast. Spans are written as `"90s"`, rates as `"100/s"` or `"5/15m"`. */
export type Limit =
  | { algorithm: "token_bucket"; name?: string; capacity: number; rate: string }
  | { algorithm: "fixed_window"; name?: string; limit: number; period: string }
  | { algorithm: "sliding_window"; name?: string; limit: number; period: string; segments?: number };

/** One policy: up to 16 limits, decided all or nothing. */
export interface Policy {
  description?: string;
  limits: Limit[];
  /** Where a gateway finds the key; not used here. */
  key?: string[];
  /** What a request costs that does not say so itself. The header is not read here. Default: 1. */
  cost?: number | { header: string; default?: number };
  /** What a store outage means; the memory of this process has none. */
  on_error?: "open" | "closed";
  /** Which Durable Object a key belongs to; not used here. */
  placement?: string;
}

/** A whole policy file, the one that the Worker and the native host read. */
export interface PolicyFile {
  auth?: "token" | "none";
  policies: Record<string, Policy>;
}

export interface LimiterOptions {
  /** Which policy of a policy file. Not needed if it has only one. */
  policy?: string;
  /**
   * The most keys in use at once. A key is forgotten only when that changes no decision; a
   * limiter with this many keys throws `TABLE_FULL` on a new one. Default: 1,000,000, or fewer if
   * the policy's states are so large that these would not fit.
   */
  maxKeys?: number;
}

/** The answer to one request. Spans count from the time of the decision, in microseconds. */
export interface Decision {
  /** Whether the request may pass. If not, it has consumed nothing. */
  readonly allowed: boolean;
  /** The most that could ever be taken at once. */
  readonly limit: number;
  /** What could still be taken at this moment, rounded down. */
  readonly remaining: number;
  /**
   * The same request is granted this much later, and no microsecond earlier, if nothing else
   * comes. 0 if it has been granted.
   */
  readonly retryAfterUs: number;
  /** Until the key is as good as new, if nothing else comes. */
  readonly resetAfterUs: number;
}

/** The `code` of every error that is thrown here. */
export type ErrorCode =
  | "INVALID_POLICY"
  | "UNKNOWN_POLICY"
  | "INVALID_OPTION"
  | "INVALID_KEY"
  | "INVALID_COST"
  | "INVALID_NOW"
  | "COST_EXCEEDS_CAPACITY"
  | "TABLE_FULL"
  | "FREED";

/** What is thrown, a `TypeError`, a `RangeError` or a plain `Error`. */
export interface LimiterError extends Error {
  code: ErrorCode;
}

/** What is thrown for a policy that cannot be read. */
export interface PolicyError extends LimiterError {
  code: "INVALID_POLICY";
  /** From 1, in a policy that was given as text; 0 if the fault is in no line. */
  line: number;
  /** From 1, in characters; 0 if the fault is in no line. */
  column: number;
  /** Such as `limits[0].rate`; empty at the top. */
  path: string;
}

/**
 * Limits many keys by one policy, in the memory of this process.
 *
 * All quantities are whole numbers from 0 to 2^53 − 1. `now` is in **microseconds** since the
 * Unix epoch and defaults to `Date.now() * 1000`. An argument that is none of what is allowed
 * throws a `TypeError` or `RangeError`, and consumes nothing.
 */
export class Limiter {
  /**
   * @param policy one policy or a policy file: as an object, or as text in TOML or JSON
   * @throws {PolicyError} with the place of the fault
   */
  constructor(policy: Policy | PolicyFile | string, options?: LimiterOptions);

  /**
   * Decides on a request, and takes its cost if it is granted.
   *
   * @param key who is limited: 1 to 512 bytes of UTF-8
   * @param cost default: the policy's; 0 changes nothing
   * @throws {LimiterError} `COST_EXCEEDS_CAPACITY` for a cost that can never be granted,
   *   `TABLE_FULL` for a new key beyond `maxKeys`
   */
  check(key: string, cost?: number, now?: number): Decision;

  /** What is left to the key; changes nothing. A cost of 0 is always granted. */
  peek(key: string, now?: number): Decision;

  /**
   * Forgets the keys that are as good as new. Frees memory; changes no decision. A full limiter
   * does so by itself.
   */
  sweep(now?: number): void;

  /** How many keys are in use. */
  readonly size: number;

  /**
   * Gives the memory back at once, instead of when the limiter is garbage-collected. Any later
   * call but this one throws.
   */
  free(): void;
  [Symbol.dispose](): void;
}
