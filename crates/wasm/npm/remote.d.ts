/**
 * Exact rate limiting by a server: the Cloudflare Worker, or `tidegate serve`.
 *
 * @module tidegate/remote
 */

import type * as memory from "tidegate";
import type { Answer, AsyncLimiter, Decision, Elsewhere, Grant, HeldGrant, Ran, Reservation } from "tidegate/redis";

export type { ErrorCode, LimitAnswer, Signal, Span } from "tidegate";
export { ArgumentError, FullError, LimiterError, PolicyError } from "tidegate";
export type { Answer, AsyncLimiter, Committed, Decision, Degraded, Elsewhere, Explanation, Grant, Granted, HeldAnswer, HeldGrant, Ran, Reservation, Undegraded } from "tidegate/redis";

/** The options of a limiter that asks a server. */
export interface RemoteLimiterOptions {
  /** The URL of the server, such as `"https://limiter.example"`. Paths of the API are added to it. */
  url: string;
  /** The name of the policy. The server has its limits. */
  policy: string;
  /** The token of the server: that for decisions, or for `reset` and `block` that for administration. Default: none. */
  token?: string;
  /** How long a call may take, from 1 ms to 1 h. Then `onError` decides. Default: `"1s"`. */
  deadline?: memory.Span;
  /** Whether requests pass if the server does not answer, or gives an answer that its API does not have. Default: `"closed"`. */
  onError?: "open" | "closed";
  /** `metering` of `tidegate`, whose WebAssembly reads costs from responses. Middleware needs it beside `actual` and `countIf`. */
  metering?: memory.Metering;
  /** What sends a request, such as that of a service binding. Default: `globalThis.fetch`. */
  fetch?: (url: string, init: any) => Promise<any>;
}

/** The options that every operation has. */
export interface CallOptions {
  /** Ends the wait for the answer, before the limiter's `deadline`. Then `onError` decides. */
  signal?: memory.Signal;
}

/** The options of operations that the server can take once, however often they come. */
export interface OnceOptions extends CallOptions {
  /**
   * Makes repeats of the operation known: 1 to 255 printable characters of ASCII, without quotes and backslashes, that nobody can guess.
   * The policy must have `idempotency`. Such an operation shares no call, and is sent a second time if its answer was lost.
   */
  idempotencyKey?: string;
}

/** The options of `check`. */
export type CheckOptions = Elsewhere<memory.CheckOptions> & OnceOptions;

/** A request. Each limit reads the fields that it needs. */
export type Request = Elsewhere<memory.Request> & OnceOptions;

/** What is asked about a request whose true cost is known later. */
export type ReserveRequest = Elsewhere<memory.ReserveRequest> & OnceOptions;

/**
 * Limits many keys by one policy of a server, together with all that ask this server.
 *
 * The server decides at its own time. Checks that begin together share a call. If the server does not answer, `onError` decides, and the
 * answer has `degraded`.
 *
 * A grant gives units back only if its request named a `cost`.
 */
export class RemoteLimiter {
  /** @throws {ArgumentError} `INVALID_OPTION`; no error shows the token or the URL */
  constructor(options: RemoteLimiterOptions);
}

export interface RemoteLimiter extends AsyncLimiter<CallOptions> {
  check(key: string, options?: CheckOptions): Promise<Decision>;
  decide(key: string, request?: Request): Promise<Grant<OnceOptions>>;
  waitFor(key: string, options?: Elsewhere<memory.WaitOptions>): Promise<Grant<OnceOptions>>;
  acquire(key: string, request?: Request): Promise<HeldGrant<OnceOptions>>;
  run<T>(key: string, fn: (signal: memory.LeaseSignal) => T | Promise<T>, request?: Request): Promise<Ran<T>>;
  reserve(key: string, request?: ReserveRequest): Promise<Reservation>;
  refund(key: string, units: number, options?: OnceOptions): Promise<Answer>;

  /** Checks the options of middleware. Their `key` must be a function, because only the server has the policy. */
  prepare<T extends object>(options: T, among?: { isLast: boolean }): T;

  /** No key: the server refuses a request for which the function `key` finds none. */
  keyOf(): string;

  /** Decides on a request as middleware does, by `POST /v1/admit` of the server. If it does not answer, `onError` decides. */
  admit(key: string, options?: memory.AdmitOptions): Promise<memory.Admission>;

  /**
   * Gives back what a request was granted: its units come back, and its lease or reservation is released.
   *
   * @throws {LimiterError} `UNAVAILABLE` if the server does not answer
   */
  giveBack(key: string, admission: memory.Admission): Promise<void>;
}

export default RemoteLimiter;
