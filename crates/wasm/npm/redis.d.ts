/**
 * Exact rate limiting of a fleet: the states are in a Redis that its processes share.
 *
 * @module tidegate/redis
 */

import type * as memory from "tidegate";

export type { AnyPolicy, ErrorCode, Limit, LimitAnswer, Policy, PolicyFile, Reservations, Span, TomlPolicy } from "tidegate";
export { ArgumentError, FullError, LimiterError, PolicyError } from "tidegate";

/** A client of the package `ioredis`, or its `Cluster`. */
export interface IoRedis {
  /** Sends a command, and returns bytes as a `Buffer`. */
  callBuffer(command: string, args: any[]): Promise<unknown>;
}

/** What `createClient`, `createClientPool`, `createCluster` and `createSentinel` of the package `redis` return, version 5 or newer. */
export interface NodeRedis {
  /** Sends a command. */
  sendCommand(...args: any[]): Promise<unknown>;
  /** The same client with other types of replies. */
  withTypeMapping(mapping: any): unknown;
}

/** A client of the package `@upstash/redis`. */
export interface UpstashRedis {
  /** Calls a script. */
  eval(script: string, keys: string[], args: any[]): Promise<unknown>;
  /** Calls a script by its hash. */
  evalsha(hash: string, keys: string[], args: any[]): Promise<unknown>;
}

/** The options of a limiter on Redis. */
export interface RedisLimiterOptions {
  /** The name of a policy in the policy file. Not needed if the file has only one policy. */
  policy?: string;
  /** The prefix of every name in Redis. Processes share their limits if they have the same prefix. Default: none. */
  prefix?: string;
  /**
   * How long Redis may take to answer a call, from 1 ms to 1 h. Then the policy's `on_error` decides, and the next call to Redis is
   * begun. Default: `"250ms"`.
   */
  deadline?: memory.Span;
}

/** The options that every operation on Redis has. */
export interface Options {
  /** Microseconds since the Unix epoch, for a test. Default: `Date.now() * 1000`. */
  now?: number;
}

/** The options of `check`. */
export type CheckOptions = Omit<memory.CheckOptions, "limits">;

/** A request. Each limit reads the fields that it needs. */
export type Request = Omit<memory.Request, "limits">;

/** An argument without the fields that only a limiter with a clock and a policy of its own takes. */
export type Elsewhere<Argument> = Argument extends unknown ? Omit<Argument, "now" | "limits" | "draw"> : never;

/**
 * Redis, or the server, could not be asked, so `on_error` has decided. Nobody knows the numbers of the key. A grant may have been
 * stored nevertheless.
 */
export interface Degraded {
  /** Whether the request passes: `on_error` says so, or under `"local"` this limiter's share. Of a policy in shadow it is true. */
  readonly allowed: boolean;
  /** Why nobody has decided, for a log. */
  readonly degraded: string;
  /** Absent. */
  readonly limit?: undefined;
  /** Absent. */
  readonly remaining?: undefined;
  /** Absent: nobody knows how long to wait. */
  readonly retryAfterUs?: undefined;
  /** Absent. */
  readonly resetAfterUs?: undefined;
  /** Absent. */
  readonly atUs?: undefined;
  /** Absent. */
  readonly limits?: undefined;
  /** Absent: a limiter on Redis knows its lists, and a server says nothing. */
  readonly denied?: undefined;
  /** Absent. */
  readonly wouldAllow?: undefined;
  /** Absent. */
  readonly warned?: undefined;
  /** Absent. */
  readonly paidBy?: undefined;
  /** The lease that the operation concerns. */
  readonly lease?: string;
  /** Absent: nobody knows. */
  readonly live?: undefined;
  /** Absent. */
  readonly factor?: undefined;
  /** Absent. */
  readonly wouldFactor?: undefined;
  /** Absent. */
  readonly budget?: undefined;
}

/** What Redis or the server has decided. */
export interface Undegraded {
  /** Absent. */
  readonly degraded?: undefined;
}

/** The answer to `check`. */
export type Decision = (memory.Decision & Undegraded) | Degraded;

/** The answer to an operation. */
export type Answer = (memory.Answer & Undegraded) | Degraded;

/** The answer to an operation on a lease. */
export type HeldAnswer = (memory.HeldAnswer & Undegraded) | (Degraded & {
  /** The name of the lease. */
  readonly lease: string;
});

/** The answer to `reserve`. */
export type Reservation = (memory.Reservation & Undegraded) | (Degraded & {
  /** The id of the reservation. */
  readonly id: string;
  /** Absent: nobody knows. */
  readonly reserved?: undefined;
  /** Absent: nobody knows. */
  readonly expiresAtUs?: undefined;
});

/** The answer to `commit`. */
export type Committed = (memory.Committed & Undegraded) | (Degraded & {
  /** The id of the reservation. */
  readonly id: string;
  /** Absent: nobody knows. */
  readonly charged?: undefined;
  /** Absent: nobody knows. */
  readonly late?: undefined;
});

/** An answer, and the reason for it. */
export type Explanation = (memory.Explanation & Undegraded) | (Degraded & {
  /** Absent. */
  readonly limitName?: undefined;
  /** Absent. */
  readonly bound?: undefined;
  /** Absent. */
  readonly text?: undefined;
});

/** What can be done with a request that was decided. `Own` are the options that every operation of its limiter has. */
export interface Granted<Own = Options> {
  /**
   * Gives units back, by default all that the request has taken and not given back. The answer is that of a peek after it, or
   * `undefined` if the request has no units left to give, as a refused one. Each limit takes back only the units that it still counts.
   *
   * @throws {ArgumentError} `INVALID_REQUEST` for more units than the request has taken and not given back
   * @throws {LimiterError} `UNAVAILABLE` if nobody answers; the units then count as given back, because they may be
   */
  refund(units?: number, options?: Own): Promise<memory.Answer | undefined>;
  /** Renews the lease. */
  renew(options?: Own & { count?: number }): Promise<HeldAnswer>;
  /**
   * Releases the lease, once, and returns whether it was live. Does nothing without a lease.
   *
   * @throws {LimiterError} `UNAVAILABLE` if nobody answers; the lease can be released again, or ends with its time to live
   */
  release(options?: Own): Promise<boolean>;
  /** Releases the lease, for `await using`. Does nothing if nobody answers or the limiter has been closed. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** A request that was decided. If it was granted, its units can come back, and its lease can be released. */
export type Grant<Own = Options> = Answer & Granted<Own>;

/** A grant of `acquire`, which names a lease even if it is refused. */
export type HeldGrant<Own = Options> = HeldAnswer & Granted<Own>;

/**
 * A limiter whose answers are promises: a `FarLimiter`, or `RemoteLimiter` of `tidegate/remote`. `Own` are the options that every
 * operation has.
 *
 * The methods are those of `Limiter` in `tidegate`. What throws there rejects here. If nobody can be asked, `on_error` decides, and the
 * answer has `degraded`.
 */
export interface AsyncLimiter<Own = object> {
  /**
   * Decides on a request by its cost, and takes the cost if the request is granted.
   *
   * @param key the key to count by: 1 to 512 bytes of UTF-8; an address after `ip:`
   * @throws {ArgumentError} `COST_EXCEEDS_CAPACITY` for a cost that can never be granted (not in shadow)
   * @throws {LimiterError} `NEEDS_LEASE` if a limit on the key holds leases
   */
  check(key: string, options?: Elsewhere<memory.CheckOptions> & Own): Promise<Decision>;

  /** Answers whether and when a request would pass, and changes nothing. The default cost is 0. */
  peek(key: string, request?: Pick<memory.Request, "cost" | "class"> & Own): Promise<Answer>;

  /** Answers as `peek` does, by default at the policy's cost, and says why: which limit, and which of its rates or gaps. */
  explain(key: string, request?: Elsewhere<memory.Request> & Own): Promise<Explanation>;

  /** Decides on a request, and returns the answer of each limit. If a limit on the key holds leases, the request acquires a lease. */
  decide(key: string, request?: Elsewhere<memory.Request> & Own): Promise<Grant<Own>>;

  /**
   * Waits until a request is granted. Requests on one key are granted in the order of their calls. The first of them asks again when
   * the wait of its refusal has passed, when this limiter has given units back, and at the latest after a second, because others may
   * give units back. It also asks again while the store cannot be asked and `on_error` refuses.
   *
   * @param options a signal that is aborted while an answer is under way ends the wait after the answer, unless this is a grant
   * @throws {LimiterError} `NEVER_GRANTED` for a key on the list `deny`; `FREED` if the limiter is closed meanwhile
   * @throws {FullError} `TOO_MANY_WAITERS` if 10,000 requests wait already
   */
  waitFor(key: string, options?: Elsewhere<memory.WaitOptions>): Promise<Grant<Own>>;

  /**
   * Acquires a lease, if the answer allows it.
   *
   * @param request the cost must be above 0
   * @throws {LimiterError} as `decide`; `INVALID_REQUEST` if no limit on the key holds leases
   */
  acquire(key: string, request?: Elsewhere<memory.Request> & Own): Promise<HeldGrant<Own>>;

  /**
   * Acquires a lease, calls `fn` if the answer allows it, and releases the lease when `fn` has ended, also if it throws. Meanwhile the
   * lease is renewed, each time that a third of its time to live has passed. The timers keep no process alive.
   *
   * @param fn gets a signal, which is aborted if the lease is lost, with an error `LEASE_LOST`: then others may hold its place. It is
   *   also lost if the store could not be asked for as long as its time to live
   * @param request a request as of `acquire`
   * @throws {LimiterError} as `acquire`, and what `fn` throws
   */
  run<T>(key: string, fn: (signal: memory.LeaseSignal) => T | Promise<T>, request?: Elsewhere<memory.Request>): Promise<Ran<T>>;

  /**
   * Renews a lease. If the lease is no longer `live`, it cannot be renewed: acquire a new one.
   *
   * @param options `count`: sets the number of the owner's connections; less than 2^32
   */
  renew(key: string, lease: string, options?: { count?: number } & Own): Promise<HeldAnswer>;

  /** Releases a lease, or closes one connection of an owner. */
  release(key: string, lease: string, options?: Own): Promise<HeldAnswer>;

  /**
   * Returns the `left` units of the last budget of the holder named `lease`, and then takes units out of the key's other limits, which
   * the holder may spend without asking.
   *
   * @throws {LimiterError} `INVALID_REQUEST` if no limit on the key is `budget`
   */
  budget(key: string, lease: string, wanted: Elsewhere<memory.WantedBudget> & Own): Promise<HeldAnswer>;

  /**
   * Counts the load that a reporter was offered, and answers the `factor` for reporters to apply.
   *
   * @throws {LimiterError} `INVALID_REQUEST` if no limit on the key is `suppression`
   */
  report(key: string, report: memory.Report & Own): Promise<Answer>;

  /**
   * Reserves units for a request whose true cost is known later. A call that is repeated with the same id takes nothing more.
   *
   * @throws {LimiterError} `INVALID_REQUEST` if the policy has no `reservations`
   */
  reserve(key: string, request?: Elsewhere<memory.ReserveRequest> & Own): Promise<Reservation>;

  /**
   * Says what a reservation has really cost, once: a repeated call gets the same answer and changes nothing.
   *
   * @param actual the units that were used, which may exceed the estimate
   */
  commit(key: string, id: string, actual: number, options?: Own): Promise<Committed>;

  /**
   * Returns units that were not used.
   *
   * @param units at least 1
   */
  refund(key: string, units: number, options?: Own): Promise<Answer>;

  /**
   * Clears the state of the key. States that it shares with other keys by a `depth` stay.
   *
   * @throws {LimiterError} `UNAVAILABLE` if nobody answers
   */
  reset(key: string, options?: Own): Promise<memory.Answer>;

  /**
   * Refuses every request on the key for a time, in all processes.
   *
   * @param span the time; 0 ends the block, and so does `reset`
   * @throws {LimiterError} `UNAVAILABLE` if nobody answers
   */
  block(key: string, span: memory.Span | 0, options?: Own): Promise<memory.Answer>;

  /** The number of operations that wait for their answer, and of requests that wait in `waitFor`. */
  readonly waiting: number;

  /** Takes no more operations: a later one rejects with `FREED`. Resolves when all earlier ones are answered. */
  close(): Promise<void>;
  /** Closes the limiter, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** A limiter whose states are in a store: `RedisLimiter`, or `DurableLimiter` of `tidegate/durable-objects`. */
export interface FarLimiter extends AsyncLimiter<Options> {
  check(key: string, options?: CheckOptions): Promise<Decision>;
  peek(key: string, request?: Request): Promise<Answer>;
  explain(key: string, request?: Request): Promise<Explanation>;
  decide(key: string, request?: Request): Promise<Grant>;
  waitFor(key: string, options?: Omit<memory.WaitOptions, "limits">): Promise<Grant>;
  acquire(key: string, request?: Request): Promise<HeldGrant>;
  run<T>(key: string, fn: (signal: memory.LeaseSignal) => T | Promise<T>, request?: Omit<Request, "now">): Promise<Ran<T>>;
  reserve(key: string, request?: memory.ReserveRequest): Promise<Reservation>;

  /** Checks the options of middleware, as `prepare` of a `Limiter` does. */
  prepare<T extends object>(options: T, among?: { isLast: boolean }): T;

  /** The key of a request, or what happens to a request without one. `header` gets names in lower case. */
  keyOf(request: { header: (name: string) => string | undefined; query: string; ip?: string }): string | memory.Admission;

  /** Decides on a request as middleware does, as `admit` of a `Limiter` does. If the store cannot be asked, `on_error` decides. */
  admit(key: string, options?: memory.AdmitOptions): Promise<memory.Admission>;

  /**
   * Gives back what a request was granted: its units come back, and its lease or reservation is released.
   *
   * @throws {LimiterError} `UNAVAILABLE` if the store does not answer
   */
  giveBack(key: string, admission: memory.Admission): Promise<void>;
}

/** What `run` resolves to: a grant, which has released its lease, and what the function has returned. */
export type Ran<T> = HeldGrant & ({
  /** The request passes, so the function was called. */
  readonly allowed: true;
  /** What the function has returned. */
  readonly value: T;
} | {
  /** The request was refused, so the function was not called. */
  readonly allowed: false;
  /** Absent. */
  readonly value?: undefined;
});

/**
 * Limits many keys by one policy, together with all processes that use the same Redis, policy and prefix: of Node, and of the native
 * host, whose script, names and bytes these are.
 *
 * The methods are those of `Limiter` in `tidegate`, and return promises. What throws there rejects here. Operations that begin
 * together share one call to Redis. If Redis cannot be asked, the policy's `on_error` decides, and the answer has `degraded`.
 */
export class RedisLimiter {
  /**
   * @param policy one policy or a policy file: as an object, as a text in JSON, or as `toml(text)` of `tidegate/toml`. Policies of one
   *   Redis need different names
   * @param client a client that the caller has made, and closes
   * @throws {PolicyError} with the place of the error
   * @throws {ArgumentError} `INVALID_OPTION` for anything but a client
   */
  constructor(policy: memory.AnyPolicy, client: IoRedis | NodeRedis | UpstashRedis, options?: RedisLimiterOptions);
}

export interface RedisLimiter extends FarLimiter {}

export default RedisLimiter;
