/// <reference lib="esnext.disposable" />

/**
 * A limit: how much, how fast, for how long. Spans are written as `"90s"`, rates as `"100/s"` or
 * `"5/15m"`, shares as `"80%"`.
 */
export type Limit = Algorithm & {
  name?: string;
  /** It counts by so many parts of the key, parted by `/`; 0: all keys together. Default: by all of it. */
  depth?: number;
};

/** What a limit is, with what it needs to know. */
export type Algorithm =
  | { algorithm: "token_bucket"; capacity: number; rate: string; start?: "full" | "empty" }
  | { algorithm: "fixed_window"; limit: number; period: string }
  | { algorithm: "sliding_window"; limit: number; period: string; segments?: number }
  | { algorithm: "sliding_log"; rates: string[]; min_gap?: string; count_denied?: boolean }
  | { algorithm: "concurrency"; capacity: number; time_to_live: string; max_leases?: number }
  | { algorithm: "connections"; limit: number; expiry?: string; max_owners?: number }
  | { algorithm: "budget"; most: number; time: string; max_holders?: number }
  | { algorithm: "fleet_usage"; capacity: number; reserve: string; time_to_live: string; max_leases?: number }
  | { algorithm: "utilization"; good?: string; bad?: string; delay?: string; full?: string }
  | { algorithm: "suppression"; rate: string; estimator?: "newest_part" | "modified_mean" }
  | { algorithm: "suppression"; rate: string; estimator: "linear_admitted"; ramp?: number }
  | {
      algorithm: "penalty";
      refusals: number;
      within: string;
      duration: string;
      max?: string;
      forgive_after?: string;
    };

/** For some keys: of the policy's only limit other numbers, or other limits altogether. */
export type Override = { limits: Limit[] } | Partial<Fields<Limit>>;
type Fields<T> = { [K in T extends unknown ? keyof T : never]: T extends { [P in K]?: infer V } ? V : never };

/** One policy: up to 16 limits, decided all or nothing. */
export interface Policy {
  description?: string;
  limits: Limit[];
  /**
   * By the key that they are for: itself, with one `*` for any characters, or a network such as
   * `ip:192.0.2.0/24`.
   */
  overrides?: Record<string, Override>;
  /** Keys that never pass, written as those of `overrides`. */
  deny?: string[];
  /** Keys that always pass unless they are denied. */
  allow?: string[];
  /** Decides and reports, refuses nothing: see `wouldAllow`. Default: false. */
  shadow?: boolean;
  /** Keys `ip:…` of IPv6 are counted by so many bits. Default: 64. */
  ipv6_prefix?: number;
  /** The least important first; the last is never shed. Default: `["default", "critical"]`. */
  classes?: string[];
  /** Where a gateway finds the key; not used here. */
  key?: string[];
  /** What a request costs that does not say so itself. The header is not read here. Default: 1. */
  cost?: number | { header: string; default?: number };
  /** What a store outage means; the memory of this process has none. */
  on_error?: "open" | "closed";
  /** What becomes of what was used when the limits are edited; not used here. */
  on_change?: "reset" | "keep" | "proportional";
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
   * The most bytes that the keys in use may take, up to 2 GiB. A key is forgotten only when that
   * changes no decision; a limiter throws `TABLE_FULL` on a new key that would exceed the bound.
   * Default: 256 MiB, which has room for 900,000 short keys with a small state.
   */
  maxBytes?: number;
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
   * comes. 0 if it has been granted. A hint where chance decides.
   */
  readonly retryAfterUs: number;
  /** Until the key is as good as new, if nothing else comes. */
  readonly resetAfterUs: number;
  /** Under a policy in shadow alone, where all are allowed: what `allowed` would be without it. */
  readonly wouldAllow?: boolean;
}

/** A decision, and what each limit says. */
export interface Answer extends Decision {
  /** When it was taken: not before any other on this key. A settlement names this time. */
  readonly atUs: number;
  /**
   * Each with its own numbers, as they stand after the decision: those that count by less of the
   * key first. Empty for a key that is on the list `allow` or `deny`.
   */
  readonly limits: readonly LimitAnswer[];
  /** The lease that it is about; who only looks, at a cost of 0, gets none. */
  readonly lease?: string;
  /** Whether that lease was live; absent for a key on a list, for which nothing is held. */
  readonly live?: boolean;
  /**
   * Under a limit `suppression`: the fraction of the load that is to be refused, from 0 to 1. A
   * multiple of 2^-32, which a number holds exactly. Absent for a key on a list.
   */
  readonly factor?: number;
  /** Under a policy in shadow alone, where `factor` is 0: what it would be without it. */
  readonly wouldFactor?: number;
  /** In the answer to `budget` alone: what was granted. Absent for a key on a list. */
  readonly budget?: Budget;
}

/** Units that may be spent without asking. */
export interface Budget {
  /** How many; 0 is no budget. */
  readonly granted: number;
  /** When; to give back what is left, name this time. */
  readonly grantedAtUs: number;
  /** From when on they must not be spent. */
  readonly expiresAtUs: number;
}

/** What a holder would spend without asking, and what it gives back of its last budget. */
export type WantedBudget =
  | { wants: number; grantedAtUs?: undefined; left?: undefined }
  | { wants: number; grantedAtUs: number; left: number };

/** What one limit of a policy says. */
export interface LimitAnswer extends Omit<Decision, "wouldAllow"> {
  readonly name: string;
}

/** What a request brings for its limits to decide on. Each reads what it needs. */
export interface Request {
  /** Default: the policy's; 0 only looks. A lease is one place, whatever this is. */
  cost?: number;
  /** How important it is: one of the policy's `classes`. Default: the least. */
  class?: string;
  /**
   * The lease that it wants, or who owns the connection that it opens: 1 to 128 bytes of UTF-8.
   * Default: one that nobody can guess.
   */
  lease?: string;
  /** What a limit `utilization` goes by, if it was measured: busy parts per million. */
  signalPpm?: number;
  /** From 0 to 2^32 − 1, for a test: what chance would decide. Default: by chance. */
  draw?: number;
}

/** What a request really cost that was granted on an estimate. */
export interface Settlement {
  /** `atUs` of the answer that granted it. */
  grantedAtUs: number;
  /** What was taken then. */
  reserved: number;
  /** What it came to. */
  actual: number;
}

/** What was offered in one part of 6 s. */
export interface Report {
  /** Units that passed. */
  admitted: number;
  /** Units that would have passed without suppression. */
  suppressed: number;
  /** Any time in that part. Default: the part in progress. */
  offeredAtUs?: number;
}

/** The `code` of every error that is thrown here. */
export type ErrorCode =
  | "INVALID_POLICY"
  | "UNKNOWN_POLICY"
  | "INVALID_OPTION"
  | "INVALID_KEY"
  | "INVALID_COST"
  | "INVALID_NOW"
  | "INVALID_REQUEST"
  | "COST_EXCEEDS_CAPACITY"
  | "NEEDS_LEASE"
  | "NO_RANDOMNESS"
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
 * throws a `TypeError` or `RangeError`, and consumes nothing. Of objects only their own properties
 * are read, so an object must be plain: without a class, and without fields in its prototype.
 */
export class Limiter {
  /**
   * @param policy one policy or a policy file: as an object, or as text in TOML or JSON
   * @throws {PolicyError} with the place of the fault
   */
  constructor(policy: Policy | PolicyFile | string, options?: LimiterOptions);

  /**
   * Decides on a request of which nothing but its cost is to be known, and takes it if it is
   * granted. It is of the least important class; what is shed by chance is so by a new draw. The
   * quickest of all calls.
   *
   * @param key who is limited: 1 to 512 bytes of UTF-8; behind `ip:` an address
   * @param cost default: the policy's; 0 changes nothing
   * @throws {LimiterError} `COST_EXCEEDS_CAPACITY` for a cost that can never be granted (not in shadow),
   *   `TABLE_FULL` for a new key beyond `maxBytes`, `NEEDS_LEASE` if a limit on the key holds leases
   */
  check(key: string, cost?: number, now?: number): Decision;

  /**
   * Says whether a request would pass, and if not, when; changes nothing. A cost of 0, the default, asks
   * what is left. Where load is shed by chance, it says whether the request would surely pass.
   */
  peek(key: string, request?: Request, now?: number): Answer;

  /**
   * Decides on a request, and says what each limit says. Where leases are held it acquires one.
   *
   * @throws {LimiterError} as `check`, except `NEEDS_LEASE`; `NO_RANDOMNESS` if a lease needs a
   *   name and the runtime has no random numbers
   */
  decide(key: string, request?: Request, now?: number): Answer;

  /**
   * Acquires a lease, if the answer allows it; until `release`, or its time to live after the last
   * `renew`, it holds a place.
   *
   * @param request its cost, if it has one, is above 0
   * @throws {LimiterError} as `decide`; `INVALID_REQUEST` if no limit on the key holds leases
   */
  acquire(key: string, request?: Request, now?: number): Answer & { readonly lease: string };

  /**
   * The holder of a lease is alive. If it was no longer `live`, there is nothing left to renew:
   * acquire anew.
   *
   * @param options `count`: how many connections the owner has, whatever was counted; less than 2^32
   */
  renew(key: string, lease: string, options?: { count?: number }, now?: number): Answer & { readonly lease: string };

  /** Gives a lease back, or closes one connection of an owner. */
  release(key: string, lease: string, now?: number): Answer & { readonly lease: string };

  /**
   * Takes units out of the key's other limits, for the holder named by `lease` to spend without
   * asking, and first gives back what is `left` of its last budget.
   *
   * @param wanted `wants`: how many it would spend in the time of a budget; 0 only gives back
   * @throws {LimiterError} `INVALID_REQUEST` if no limit on the key is `budget`
   */
  budget(key: string, lease: string, wanted: WantedBudget, now?: number): Answer & { readonly lease: string };

  /**
   * Says what a request really cost that was granted on an estimate: what was not needed comes
   * back, what was needed beyond it is taken, whether it is there or not.
   */
  settle(key: string, settlement: Settlement, now?: number): Answer;

  /**
   * Gives units back that were not used. A token bucket returns them up to its capacity; a window
   * returns what it counted in its newest segment, and no more.
   *
   * @param units at least 1
   */
  refund(key: string, units: number, now?: number): Answer;

  /** The key starts afresh. What it shares with other keys by a `depth` stays. */
  reset(key: string, now?: number): Answer;

  /**
   * Refuses every request on the key for a time, whatever its limits say.
   *
   * @param forUs the time in µs; 0 ends the block, and so does `reset`
   * @throws {LimiterError} `INVALID_REQUEST` if no limit counts by the whole key
   */
  block(key: string, forUs: number, now?: number): Answer;

  /**
   * Counts what reporters have seen, and answers the `factor` for them to apply.
   *
   * @throws {LimiterError} `INVALID_REQUEST` if no limit on the key is `suppression`
   */
  report(key: string, report: Report, now?: number): Answer;

  /**
   * Forgets the keys that are as good as new. Frees memory; changes no decision. A full limiter
   * does so by itself.
   */
  sweep(now?: number): void;

  /** How many keys are in use: with a `depth`, parts of keys that are counted by. */
  readonly size: number;

  /** What the keys in use take at most, in bytes; never more than `maxBytes`. */
  readonly bytes: number;

  /**
   * Gives the memory back at once, instead of when the limiter is garbage-collected. Any later
   * call but this one throws.
   */
  free(): void;
  [Symbol.dispose](): void;
}

export interface ReporterOptions {
  /** The account's, that of its limit `suppression`: such as `"1000/s"`. */
  limit: string;
  /** Whether what alone exceeds that limit is refused at once. Default: true. */
  localCap?: boolean;
}

/** The answer of a reporter. */
export type ReporterDecision =
  | { readonly admitted: true }
  /** As the factor demands. */
  | { readonly admitted: false; readonly reason: "suppressed" }
  /** More would pass here than the whole account may have; the cap leaves room again that much later. */
  | { readonly admitted: false; readonly reason: "capped"; readonly retryAfterUs: number };

/**
 * One account's requests in this process, under a limit `suppression` that is kept elsewhere:
 * refuses the fraction that it was last told, and counts what to report for the next.
 */
export class Reporter {
  constructor(options: ReporterOptions);

  /**
   * Decides on a request, and counts it.
   *
   * @param units default: 1; 0 only looks
   * @throws {LimiterError} `COST_EXCEEDS_CAPACITY` for units that the cap can never let pass
   */
  decide(units?: number, now?: number): ReporterDecision;

  /**
   * What is to be reported now, at most two parts of 6 s; mostly nothing. It then counts as
   * reported. Ask after each decision or every second.
   */
  dueReports(now?: number): Required<Report>[];

  /** Takes the factor that a report was answered with. It holds for 24 s. */
  apply(factor: number, now?: number): void;

  /** Gives the memory back at once. Any later call but this one throws. */
  free(): void;
  [Symbol.dispose](): void;
}
