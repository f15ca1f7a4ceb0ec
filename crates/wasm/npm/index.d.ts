/**
 * Exact rate limiting in the memory of a process.
 *
 * @module tidegate
 */

declare global {
  /** As TypeScript 5.2 declares it. Without this, older versions could not read the types of this package. */
  interface SymbolConstructor {
    readonly dispose: unique symbol;
    readonly asyncDispose: unique symbol;
  }
}

import type { AnyPolicy, Limit, Span } from "./policy.js";

export * from "./policy.js";

/** The options of a limiter. */
export interface LimiterOptions {
  /** The name of a policy in the policy file. Not needed if the file has only one policy. */
  policy?: string;
  /**
   * The most bytes that the keys in use may take, up to 2 GiB. The limiter forgets a key only when that
   * changes no decision, and throws `TABLE_FULL` for a new key that would exceed the bound.
   * Default: 256 MiB, which has room for 900,000 short keys with a small state.
   */
  maxBytes?: number;
  /** The most requests that may wait at once in `waitFor`, on all keys together. Default: 10,000. */
  maxWaiters?: number;
}

/** The options that every operation has. */
export interface Options {
  /**
   * Microseconds since the Unix epoch. Default: `Date.now() * 1000`. A time within a day of `Date.now()` itself is one in milliseconds,
   * and throws `INVALID_NOW`. A clock of your own may begin at 0.
   */
  now?: number;
  /**
   * Limits for this call, in place of the policy's own limits and its overrides, for callers whose limits come from a token
   * or a database. What the key has used stays used, as in an edit of the policy. A limiter remembers at most
   * 1,000 different ones. It forgets those that no key uses any more, at most once a second; until then they count.
   */
  limits?: Limit[];
}

/** The answer to one request. Spans count from the time of the decision, in microseconds. */
export interface Decision {
  /** Whether the request may pass. A refused request takes nothing. */
  readonly allowed: boolean;
  /** The most units that can be taken at once. */
  readonly limit: number;
  /** The units that can be taken now, rounded down. */
  readonly remaining: number;
  /**
   * The same request is granted this much later, and no microsecond earlier, if no other request comes.
   * 0 if the request was granted. A hint where chance decides. `Number.MAX_SAFE_INTEGER` if no wait helps.
   */
  readonly retryAfterUs: number;
  /** The time until the state equals that of a new key, if no other request comes; under `reservations` until the units counted now are back. */
  readonly resetAfterUs: number;
  /** Only for a key on the list `deny`, which no wait helps: answer 403 without `Retry-After`. */
  readonly denied?: true;
  /** Only if the policy or one of its limits is in shadow: `allowed` without shadow. */
  readonly wouldAllow?: boolean;
  /** A limit is used as far as its `warn_at`. */
  readonly warned?: true;
}

/** A decision, and the answer of each limit. */
export interface Answer extends Decision {
  /** The name of the limit that was charged, of those with `payer`. `check` does not say it. */
  readonly paidBy?: string;
  /** The time of the decision, never before an earlier one on this key. */
  readonly atUs: number;
  /**
   * The numbers of each limit after the decision. Limits that count by a shorter part of the key come
   * first. Empty for a key on the list `allow` or `deny`.
   */
  readonly limits: readonly LimitAnswer[];
  /** The lease that the operation concerns. A request at a cost of 0 acquires no lease. */
  readonly lease?: string;
  /** Whether the lease was live. Absent for a key on a list, which holds no leases. */
  readonly live?: boolean;
  /**
   * Under a limit `suppression`: the fraction of the load to refuse, from 0 to 1. A multiple of 2^-32,
   * which a number holds exactly. Absent for a key on a list.
   */
  readonly factor?: number;
  /** Only in shadow mode, where `factor` is 0: `factor` without shadow mode. */
  readonly wouldFactor?: number;
  /** Only in the answer to `budget`: the grant. Absent for a key on a list. */
  readonly budget?: Budget;
}

/** The answer to an operation on a lease. */
export interface HeldAnswer extends Answer {
  /** The name of the lease. */
  readonly lease: string;
}

/** A request whose true cost is known later. */
export interface ReserveRequest {
  /** The estimate, at least 1. Default: the policy's cost. */
  cost?: number;
  /** The id of the reservation: 1 to 128 bytes of UTF-8. Default: an id that nobody can guess. */
  id?: string;
  /** For how long the units are held. Default, and at most: the policy's `time_to_live`. */
  timeToLive?: Span;
  /** The importance: one of the policy's `classes`. Default: the least important one. */
  class?: string;
  /** The measured signal for a limit `utilization`: busy parts per million. */
  signalPpm?: number;
  /** The random bits of the request, from 0 to 2^32 − 1, for a test. Default: drawn at random. */
  draw?: number;
  /** Microseconds since the Unix epoch. Default: `Date.now() * 1000`. */
  now?: number;
}

/** The answer to `reserve`. */
export interface Reservation extends Answer {
  /** The id of the reservation. */
  readonly id: string;
  /** The units that are held: 0 for a key on a list. Absent if the limits refuse the reservation. */
  readonly reserved?: number;
  /** The time at which the reservation ends unless it is committed; absent if nothing is held. */
  readonly expiresAtUs?: number;
}

/** The answer to `commit`. */
export interface Committed extends Answer {
  /** The id of the reservation. */
  readonly id: string;
  /** The units that count for the reservation: those of the first commit, and 0 for a key on a list. */
  readonly charged?: number;
  /** Whether the reservation had ended before its first commit, or was never known. Its units were then charged at that commit. */
  readonly late?: boolean;
}

/** Units that a holder may spend without asking. */
export interface Budget {
  /** The number of units; 0 is no budget. */
  readonly granted: number;
  /** The time of the grant. To return unspent units, name this time. */
  readonly grantedAtUs: number;
  /** The time from which the units must not be spent. */
  readonly expiresAtUs: number;
}

/** The units that a holder would spend without asking, and the unspent units of its last budget. */
export type WantedBudget = Options & {
  /** The units that the holder would spend in the time of a budget; 0 only returns units. */
  wants: number;
} & (LastBudget | { [Field in keyof LastBudget]?: undefined });

/** What is left of the holder's last budget. */
export interface LastBudget {
  /** The time of its grant. */
  grantedAtUs: number;
  /** The units that the holder has not spent. */
  left: number;
}

/** The answer of one limit. */
export interface LimitAnswer extends Omit<Decision, "denied" | "wouldAllow"> {
  /** The name of the limit. */
  readonly name: string;
  /** The limit is in shadow, so its refusal does not count. */
  readonly shadow?: true;
  /** The version of the time zone database by which a `calendar` limit counts, such as `"2026b"`; UTC needs none. */
  readonly zoneData?: string;
}

/** The options of `check`. */
export interface CheckOptions extends Options {
  /** The units to take; 0 is a peek. Default: the policy's cost. */
  cost?: number;
}

/** A request. Each limit reads the fields that it needs. */
export interface Request extends Options {
  /** The units to take; 0 is a peek. A lease takes one place at any cost. Default: the policy's cost. */
  cost?: number;
  /** The importance: one of the policy's `classes`. Default: the least important one. */
  class?: string;
  /**
   * The name of the lease that the request acquires, or the owner of the connection that it opens: 1 to
   * 128 bytes of UTF-8. Default: a name that nobody can guess.
   */
  lease?: string;
  /** The measured signal for a limit `utilization`: busy parts per million. */
  signalPpm?: number;
  /** The random bits of the request, from 0 to 2^32 − 1, for a test. Default: drawn at random. */
  draw?: number;
}

/** What the package uses of an `AbortSignal`, for programs without the types of the DOM. */
export interface Signal {
  /** Whether the wait has ended. */
  readonly aborted: boolean;
  /** Why it has ended. */
  readonly reason: any;
  /** Calls the listener when the wait ends. */
  addEventListener(type: "abort", listener: () => void): void;
  /** Calls the listener no longer. */
  removeEventListener(type: "abort", listener: () => void): void;
}

/** An `AbortSignal`, or a {@link Signal} in programs without its type. */
export type LeaseSignal = typeof globalThis extends {
  /** The class of the runtime. */
  AbortSignal: {
    /** What its objects have. */
    prototype: infer Known;
  };
} ? Known : Signal;

/** A request that waits. It goes by the clock. */
export interface WaitOptions extends Omit<Request, "now"> {
  /** Ends the wait: the promise is rejected with the signal's reason. */
  signal?: Signal;
  /** Each wait is longer by a random share of up to this one, from 0 to 1. Default: 0.1. */
  jitter?: number;
}

/**
 * A request that was decided. If it was granted, its units can come back and its lease can be released: at the end of
 * a block with `using` or `await using`, too. A grant does not know of `set`, `reset`, `resetAll`, `restore` and `update`:
 * after these its refunds may give back units that other requests have taken.
 */
export interface Grant extends Answer {
  /**
   * Gives units back, by default all that the request has taken and not given back. The answer is that of a peek after it, or
   * `undefined` if the request has no units left to give, as a refused one. Each limit takes back only the units that it still counts.
   *
   * @throws {ArgumentError} `INVALID_REQUEST` for more units than the request has taken and not given back
   */
  refund(units?: number, options?: { now?: number }): Answer | undefined;
  /** Renews the lease. */
  renew(options?: { count?: number; now?: number }): Answer;
  /** Releases the lease, once, and returns whether it was live. Does nothing without a lease. */
  release(options?: { now?: number }): boolean;
  /** Releases the lease, for `using`. Does nothing if the limiter has been freed. */
  [Symbol.dispose](): void;
  /** Releases the lease, for `await using`. Does nothing if the limiter has been freed. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** A grant of `acquire`, which names a lease even if it is refused. */
export interface HeldGrant extends Grant {
  /** The name of the lease. */
  readonly lease: string;
}

/** What `run` returns: a grant, which has released its lease, and what the function has returned. */
export type Ran<T> = HeldGrant & ({
  /** The request was granted, so the function was called. */
  readonly allowed: true;
  /** What the function has returned. */
  readonly value: T;
} | {
  /** The request was refused, so the function was not called. */
  readonly allowed: false;
  /** Absent. */
  readonly value?: undefined;
});

/** Why a request would pass or not. */
export interface Explanation extends Answer {
  /**
   * The name of the limit that refuses longest, one that decides by chance only if no other refuses; if the request passes, of the
   * limit in shadow that would refuse it, or else of the one that has the least left. Absent if a list or a block decides.
   */
  readonly limitName?: string;
  /** The rate, the gap or the whole limit that decides, in words; empty if a list or a block decides. */
  readonly bound: string;
  /** A sentence or two for people. From one second on, a wait in it is rounded up to whole seconds; `retryAfterUs` is exact. */
  readonly text: string;
}

/** A key, or a part of a key, on which a request of one unit is refused. */
export interface Limited {
  /** The key, or a part of it that a limit with a `depth` counts by. */
  readonly key: string;
  /** The name of the limit that refuses longest; absent if the key is blocked. */
  readonly limit?: string;
  /** The time in microseconds until a request of one unit is granted, if no other request comes. */
  readonly retryAfterUs: number;
}

/** The older forms of the headers about limits. */
export type OlderHeaders = "draft-6" | "draft-7" | "x-ratelimit";

/** What happens to a request. */
export interface Admission {
  /** The headers to add to the response. */
  readonly headers: readonly (readonly [name: string, value: string])[];
  /** The response to a request that is refused. */
  readonly refusal?: {
    /** The status of HTTP. */
    readonly status: number;
    /** Problem details in JSON. */
    readonly body: string;
  };
  /** The lease to hold until the response has ended. */
  readonly lease?: {
    /** The name of the lease. */
    readonly name: string;
    /** The time in microseconds after which to renew the lease. */
    readonly renewEveryUs: number;
  };
  /** The reservation to commit once the response has ended. */
  readonly reservation?: {
    /** The id of the reservation. */
    readonly id: string;
    /** The units that are held. */
    readonly units: number;
  };
  /** The units that the request took; absent if it took none that can come back, or reserved them. */
  readonly grant?: {
    /** The time of the grant. */
    readonly atUs: number;
    /** The units. */
    readonly units: number;
  };
  /** The units that the limit with the fewest has left. */
  readonly remaining?: number;
  /** Why the store or the server has not decided, for a log; absent if it has. */
  readonly degraded?: string;
}

/** What middleware asks about a request. */
export interface AdmitOptions {
  /** The units that it takes. Default: the policy's cost. */
  cost?: number;
  /** An older form of the headers. */
  headers?: OlderHeaders;
  /** Whether the cost is an estimate, which is reserved. */
  reserves?: boolean;
  /** Whether other limiters decide on the request too, so that names of limits begin with the name of the policy. */
  isOneOfSeveral?: boolean;
  /** Whether one of them decides later. Then a policy with a `payer` is an error, because its units could not come back. */
  mayComeBack?: boolean;
}

/** The load that was offered in one part of 6 s. */
export interface Report {
  /** The units that passed. */
  admitted: number;
  /** The units that would have passed without suppression. */
  suppressed: number;
  /** Any time in the part. Default: the part in progress. */
  offeredAtUs?: number;
}

/** The `code` of every error of this package. */
export type ErrorCode =
  | "INVALID_POLICY"
  | "UNKNOWN_POLICY"
  | "INVALID_OPTION"
  | "INVALID_KEY"
  | "INVALID_COST"
  | "INVALID_NOW"
  | "INVALID_REQUEST"
  | "INVALID_LIMITS"
  | "INVALID_DUMP"
  | "INVALID_MODULE"
  | "COST_EXCEEDS_CAPACITY"
  | "NEEDS_LEASE"
  | "LEASE_LOST"
  | "NEVER_GRANTED"
  | "NO_RANDOMNESS"
  | "TABLE_FULL"
  | "TOO_MANY_LIMITS"
  | "TOO_MANY_WAITERS"
  | "NOT_INITIALIZED"
  | "UNAVAILABLE"
  | "UNAUTHORIZED"
  | "FREED";

/** Any error of this package. */
export class LimiterError extends Error {
  /** Only the package makes errors. */
  protected constructor();
  /** What went wrong, in a form that stays the same. */
  readonly code: ErrorCode;
}

/** A policy that cannot be read. */
export class PolicyError extends LimiterError {
  /** Only the package makes errors. */
  protected constructor();
  /** Whether the policy is invalid, or lacks in its file. */
  readonly code: "INVALID_POLICY" | "UNKNOWN_POLICY";
  /** The line from 1, in a policy given as text; 0 if the error is in no line. */
  readonly line: number;
  /** The column from 1, in characters; 0 if the error is in no line. */
  readonly column: number;
  /** The field, such as `limits[0].rate`; empty at the top. */
  readonly path: string;
}

/** An argument of the wrong type or value. */
export class ArgumentError extends LimiterError {
  /** Only the package makes errors. */
  protected constructor();
}

/** There is no room for what a call needs. */
export class FullError extends LimiterError {
  /** Only the package makes errors. */
  protected constructor();
  /** What is full. */
  readonly code: "TABLE_FULL" | "TOO_MANY_LIMITS" | "TOO_MANY_WAITERS";
}

/**
 * Limits many keys by one policy, in the memory of this process.
 *
 * All quantities are whole numbers from 0 to 2^53 − 1. `now` is in **microseconds** since the Unix epoch
 * and defaults to `Date.now() * 1000`; `Date.now()` itself throws. An invalid argument throws an {@link ArgumentError}, and takes
 * nothing. Only own properties of objects are read, so an object must be plain: without a class, and
 * without fields in its prototype.
 */
export class Limiter {
  /**
   * @param policy one policy or a policy file: as an object, or as text in JSON. `toml` of `tidegate/toml` takes TOML
   * @throws {PolicyError} with the place of the error
   */
  constructor(policy: AnyPolicy, options?: LimiterOptions);

  /**
   * Decides on a request by its cost, and takes the cost if the request is granted. The request has the
   * least important class, and a new random draw for limits that shed by chance. This is the fastest call.
   *
   * @param key the key to count by: 1 to 512 bytes of UTF-8; an address after `ip:`
   * @throws {ArgumentError} `COST_EXCEEDS_CAPACITY` for a cost that can never be granted (not in shadow)
   * @throws {FullError} `TABLE_FULL` for a new key beyond `maxBytes`, `TOO_MANY_LIMITS` for too many different `limits`
   * @throws {LimiterError} `NEEDS_LEASE` if a limit on the key holds leases
   */
  check(key: string, options?: CheckOptions): Decision;

  /**
   * Answers whether and when a request would pass, and changes nothing. A cost of 0, the default, asks what
   * the key has left. With limits that shed by chance, it answers whether the request passes for certain.
   */
  peek(key: string, request?: Request): Answer;

  /** Answers as `peek` does, by default at the policy's cost, and says why: which limit, and which of its rates or gaps. */
  explain(key: string, request?: Request): Explanation;

  /**
   * Decides on a request, and returns the answer of each limit. If a limit on the key holds leases, the
   * request acquires a lease.
   *
   * @throws {LimiterError} as `check`, except `NEEDS_LEASE`; `NO_RANDOMNESS` if a lease needs a
   *   name and the runtime has no random numbers
   */
  decide(key: string, request?: Request): Grant;

  /**
   * Waits until a request is granted. Requests on one key are granted in the order of their calls. A timer runs only
   * while a request waits. A request that waited is dated at the time at which it was due, unless its timer was more than 100 ms or more
   * than its own wait late. So late timers cost no rate.
   *
   * @throws {FullError} `TOO_MANY_WAITERS` beyond `maxWaiters`
   * @throws {LimiterError} `NEVER_GRANTED` for a key on the list `deny`; `FREED` if the limiter is freed meanwhile
   */
  waitFor(key: string, options?: WaitOptions): Promise<Grant>;

  /**
   * Acquires a lease, if the answer allows it. The lease holds a place until `release`, or until its time
   * to live after the last `renew` ends.
   *
   * @param request the cost must be above 0
   * @throws {LimiterError} as `decide`; `INVALID_REQUEST` if no limit on the key holds leases
   */
  acquire(key: string, request?: Request): HeldGrant;

  /**
   * Acquires a lease, calls `fn` if the answer allows it, and releases the lease when `fn` has ended, also if it throws. Meanwhile the
   * lease is renewed, each time that a third of its time to live has passed. The timers keep no process alive.
   *
   * @param fn gets a signal, which is aborted if the lease is lost, with an error `LEASE_LOST`: then others may hold its place
   * @param request a request as of `acquire`, without `now`: a lease that is renewed goes by the clock
   * @throws {LimiterError} as `acquire`, and what `fn` throws
   */
  run<T>(key: string, fn: (signal: LeaseSignal) => T | Promise<T>, request?: Omit<Request, "now">): Promise<Ran<T>>;

  /**
   * Renews a lease. If the lease is no longer `live`, it cannot be renewed: acquire a new one.
   *
   * @param options `count`: sets the number of the owner's connections; less than 2^32
   */
  renew(key: string, lease: string, options?: Options & { count?: number }): HeldAnswer;

  /** Releases a lease, or closes one connection of an owner. */
  release(key: string, lease: string, options?: Options): HeldAnswer;

  /**
   * Returns the `left` units of the last budget of the holder named `lease`, and then takes units out of the
   * key's other limits, which the holder may spend without asking.
   *
   * @throws {LimiterError} `INVALID_REQUEST` if no limit on the key is `budget`
   */
  budget(key: string, lease: string, wanted: WantedBudget): HeldAnswer;

  /**
   * Reserves units for a request whose true cost is known later. They count as used until the reservation is committed or
   * ends. A call that is repeated with the same id takes nothing more.
   *
   * @throws {ArgumentError} `COST_EXCEEDS_CAPACITY` for an estimate that can never be granted
   * @throws {LimiterError} `INVALID_REQUEST` if the policy has no `reservations`
   */
  reserve(key: string, request?: ReserveRequest): Reservation;

  /**
   * Says what a reservation has really cost, once: a repeated call gets the same answer and changes nothing. What is left in
   * the limits is then what a history with the true cost would have left. 0 gives all units back.
   *
   * @param actual the units that were used, which may exceed the estimate
   */
  commit(key: string, id: string, actual: number, options?: { now?: number }): Committed;

  /**
   * Returns units that were not used. A token bucket takes them back up to its capacity, a window up to the
   * units that it counted in its newest segment.
   *
   * @param units at least 1
   */
  refund(key: string, units: number, options?: Options): Answer;

  /** Clears the state of the key. States that it shares with other keys by a `depth` stay. */
  reset(key: string, options?: Options): Answer;

  /**
   * Checks the options of middleware, and that it can find the keys of this policy. Returns the options. `among` says that the
   * middleware has several limiters, and whether this is the last one.
   */
  prepare<T extends object>(options: T, among?: { isLast: boolean }): T;

  /** The key of a request, or what happens to a request without one. `header` gets names in lower case. */
  keyOf(request: { header: (name: string) => string | undefined; query: string; ip?: string }): string | Admission;

  /**
   * Decides on a request as middleware does, by the clock: an invalid key or a cost that can never be granted is refused like
   * a request beyond the limit. If it `reserves`, the units of its cost are held until they are committed. If the limiter
   * `isOneOfSeveral`, names of limits in the headers begin with the name of the policy.
   */
  admit(key: string, options?: AdmitOptions): Admission;

  /** Gives back what a request was granted: its units come back, and its lease or reservation is released. */
  giveBack(key: string, admission: Admission): void;

  /** Clears the states of all keys. */
  resetAll(): void;

  /**
   * Makes so many units count as used on a key, as if a request had taken them now. A limit counts at most twice its
   * capacity. Leases stay as they are.
   */
  set(key: string, used: number, options?: Options): Answer;

  /**
   * Refuses every request on the key for a time, whatever its limits say. While the block lasts, this answer and those of
   * `check` and `peek` at any cost have `allowed: false`.
   *
   * @param span the time; 0 ends the block, and so does `reset`
   * @throws {LimiterError} `INVALID_REQUEST` if no limit counts by the whole key
   */
  block(key: string, span: Span | 0, options?: Options): Answer;

  /**
   * Counts the load that a reporter was offered, and answers the `factor` for reporters to apply.
   *
   * @throws {LimiterError} `INVALID_REQUEST` if no limit on the key is `suppression`
   */
  report(key: string, report: Report & Options): Answer;

  /**
   * All states, in the form in which Tidegate stores them, with a version and a fingerprint of the limits.
   *
   * @throws {FullError} if WebAssembly has no memory left
   */
  dump(): Uint8Array;

  /**
   * Takes the states of a dump in place of all states. A dump of other limits is taken unless the policy says
   * `on_change: "reset"`.
   *
   * @throws {ArgumentError} `INVALID_DUMP` for anything but a dump that fits the policy; nothing has changed
   */
  restore(dump: ArrayBuffer | ArrayBufferView): void;

  /**
   * Decides by another policy from now on. Its `on_change` says what becomes of the states: by default what was
   * used stays used. A token bucket has refilled by its old rate until `now`, by default the clock's.
   *
   * @throws {PolicyError} as the constructor; nothing has changed
   */
  update(policy: AnyPolicy, options?: { policy?: string; now?: number }): void;

  /**
   * The keys on which a request of one unit is refused at `now`. With a `depth`, these may be parts of keys. The limiter finds some
   * thousand keys at a time. If keys change between two steps, a key may be missed, be found twice, or be found although it passes again.
   */
  limited(options?: { now?: number }): IterableIterator<Limited>;

  /**
   * Forgets the keys whose state equals that of a new key. This frees memory and changes no decision. A full
   * limiter does so by itself.
   */
  sweep(options?: { now?: number }): void;

  /** The number of keys in use. A limit with a `depth` counts parts of keys. */
  readonly size: number;

  /** The most bytes that the keys in use take; never more than `maxBytes`. */
  readonly bytes: number;

  /** The number of requests that wait in `waitFor`. */
  readonly waiting: number;

  /**
   * Frees the memory at once, instead of when the limiter is garbage-collected. Any later call except this
   * one throws.
   */
  free(): void;
  /** Frees the memory, for `using`. */
  [Symbol.dispose](): void;
}

/** The options of a reporter. */
export interface ReporterOptions {
  /** The rate of the account's limit `suppression`, such as `"1000/s"`. */
  limit: string;
  /** Whether requests beyond this limit are refused at once in this process. Default: true. */
  localCap?: boolean;
}

/** The answer of a reporter. */
export type ReporterDecision = Admitted | Suppressed | Capped;

/** The request may pass. */
export interface Admitted {
  /** Whether the request may pass. */
  readonly admitted: true;
}

/** The factor refused the request. */
export interface Suppressed {
  /** Whether the request may pass. */
  readonly admitted: false;
  /** What refused the request. */
  readonly reason: "suppressed";
}

/** This process alone would exceed the account's limit. */
export interface Capped {
  /** Whether the request may pass. */
  readonly admitted: false;
  /** What refused the request. */
  readonly reason: "capped";
  /** The time in microseconds until the cap has room again. */
  readonly retryAfterUs: number;
}

/** Reads the true costs of requests from their responses. */
export interface Metering {
  /** For the package's own middleware alone: `text` is what its options say of costs, in JSON. */
  (text: string): object;
}

/** Lets the middleware of a `RemoteLimiter` read the true costs of requests, as its option `metering`. */
export const metering: Metering;

/**
 * One account's requests in this process, under a limit `suppression` whose state is kept elsewhere.
 * Refuses the fraction of requests that the last factor says, and counts what to report for the next one.
 */
export class Reporter {
  constructor(options: ReporterOptions);

  /**
   * Decides on a request, and counts it.
   *
   * @param units default: 1; 0 is a peek
   * @throws {LimiterError} `COST_EXCEEDS_CAPACITY` for units that the cap can never let pass
   */
  decide(units?: number, now?: number): ReporterDecision;

  /**
   * The reports to send now: at most two parts of 6 s, usually none. They then count as sent. Call this after
   * each decision or every second.
   */
  dueReports(now?: number): Required<Report>[];

  /** Applies the factor of the answer to a report. The factor holds for 24 s. */
  apply(factor: number, now?: number): void;

  /** Frees the memory at once. Any later call except this one throws. */
  free(): void;
  /** Frees the memory, for `using`. */
  [Symbol.dispose](): void;
}

export default Limiter;
