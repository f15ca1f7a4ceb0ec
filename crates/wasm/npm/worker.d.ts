/**
 * The whole Cloudflare Worker, built. The fields of requests and answers are those of the HTTP API, which docs/http.md in the
 * repository of Tidegate explains.
 *
 * @module tidegate/worker
 */

/** The handler of a Worker that decides by this text of a policy file (TOML or JSON). */
export function tidegate(policies: string): Handler;

/** The handler of a Worker, to export as its default. */
export interface Handler {
  /** Answers a request to the HTTP API. */
  fetch(request: Request, env: unknown, context: unknown): Promise<Response>;
}

/** The Durable Object that holds the states of keys. Bind it as `KEYS`. */
export class Keys {
  /** Called by the runtime. */
  constructor(state: unknown, env: unknown);
}

/** The Durable Object that keeps the policies which callers have put over the deployed ones. Bind it as `POLICIES`. */
export class Policies {
  /** Called by the runtime. */
  constructor(state: unknown, env: unknown);
}

/** The calls for other Workers, whose service binding says `entrypoint = "Tidegate"`. They need no token. */
export class Tidegate {
  /** Called by the runtime. */
  constructor(context: unknown, env: unknown);
  /** The HTTP API. The request needs its token. */
  fetch(request: Request): Promise<Response>;
  /** Decides whether a request may pass. A refusal is an answer, too; a problem is thrown. */
  check(check: Check & Repeatable): Promise<Decision>;
  /** Grants all of up to 8 checks, or none of them. */
  check(together: Together): Promise<DecidedTogether>;
  /** Decides several checks in their order. */
  check(batch: Batch): Promise<Decisions>;
  /** Says whether a request would pass, and takes nothing. The default cost is 0. */
  peek(check: Key & Pick<Check, "cost" | "class">): Promise<Decision>;
  /** Acquires a lease. */
  acquire(check: Check & Repeatable): Promise<Decision>;
  /** Keeps a lease. */
  renew(lease: Lease & { count?: number }): Promise<Decision>;
  /** Gives a lease back. */
  release(lease: Lease): Promise<Decision>;
  /** Reserves units for a request whose true cost is known later. */
  reserve(reservation: Reserve & Repeatable): Promise<Decision>;
  /** Says what a reservation has really cost, once. 0 gives all units back. */
  commit(reservation: Key & Repeatable & { id: string; actual: number }): Promise<Decision>;
  /** Gives units back that were not used: at least 1. */
  refund(unused: Key & Repeatable & { units: number } & (OfGrant | { granted_at_us?: never; granted?: never })): Promise<Decision>;
}

/** A key of a policy. */
export interface Key {
  /** The name of the policy. */
  policy: string;
  /** The key to count by: 1 to 512 bytes of UTF-8. */
  key: string;
}

/** A call that is taken once, however often it is repeated. */
export interface Repeatable {
  /** What makes a repeat known, as the header `Idempotency-Key` over HTTP. The policy must have `idempotency`. */
  idempotency_key?: string;
}

/** The grant that has taken units. */
export interface OfGrant {
  /** The time of the grant: `at_us` of its answer. */
  granted_at_us: number;
  /** The units that it has taken and not given back. */
  granted: number;
}

/** A request to decide on. */
export interface Check extends Key {
  /** The units to take; 0 is a peek. Default: the policy's cost. */
  cost?: number;
  /** The importance: one of the policy's `classes`. Default: the least important one. */
  class?: string;
  /** The name of the lease to acquire. Default: a name that nobody can guess. */
  lease?: string;
  /** The measured signal for a limit `utilization`: busy parts per million. */
  signal_ppm?: number;
}

/** A request whose true cost is known later. */
export interface Reserve extends Omit<Check, "lease"> {
  /** The id of the reservation. Default: an id that nobody can guess. */
  id?: string;
  /** For how long the units are held: a span such as `"90s"`, or microseconds. Default, and at most: the policy's `time_to_live`. */
  time_to_live?: string | number;
}

/** Several requests to decide on. */
export interface Batch {
  /** The requests, in the order in which to decide on them. */
  checks: Check[];
}

/** Requests that are granted together or not at all. */
export interface Together extends Batch {
  /** That they are. */
  all_or_nothing: true;
}

/** The answer to requests that are granted together or not at all. */
export interface DecidedTogether {
  /** Whether all of them were granted. */
  allowed: boolean;
  /** The decisions, in the order of the requests. A refusal is the last one. */
  decisions: (Decision & {
    /** Before a refusal: whether what was granted came back. */
    returned?: boolean;
  })[];
}

/** The answer to several requests. */
export interface Decisions {
  /** The decisions, in the order of the requests. */
  decisions: Decision[];
}

/** A lease on a key. */
export interface Lease extends Key {
  /** The name of the lease. */
  lease: string;
}

/** What one limit says. Spans count from the time of the decision, in microseconds. */
export interface LimitDecision {
  /** The name of the limit. */
  name: string;
  /** Whether the limit grants the request. */
  allowed: boolean;
  /** The most units that can be taken at once. */
  limit: number;
  /** The units that can be taken now, rounded down. */
  remaining: number;
  /** The time until the same request is granted, if no other request comes; 0 if it was granted. */
  retry_after_us: number;
  /** The time until the state equals that of a new key, if no other request comes. */
  reset_after_us: number;
  /** The limit is in shadow, so its refusal does not count. */
  shadow?: true;
  /** The limit is used as far as its `warn_at`. In the answer: some limit is. */
  warned?: true;
  /** The version of the time zone database by which a `calendar` limit counts, such as `"2026b"`; UTC needs none. */
  zone_data?: string;
}

/** The answer to one request. A refused request takes nothing. */
export interface Decision extends Omit<LimitDecision, "name" | "shadow" | "zone_data"> {
  /** The name of the policy. */
  policy: string;
  /** The time of the decision, in microseconds since the Unix epoch. */
  at_us: number;
  /** The decision of each limit. Empty for a key on the list `allow` or `deny`. */
  limits: LimitDecision[];
  /** Only for a key on the list `deny`, which no wait helps: answer 403 without `Retry-After`. */
  denied?: true;
  /** Only if the policy or one of its limits is in shadow: `allowed` without shadow. */
  would_allow?: boolean;
  /** The name of the lease that the operation concerns. */
  lease?: string;
  /** After which time to renew the lease that was acquired, in microseconds. */
  renew_every_us?: number;
  /** Whether the lease was live. */
  live?: boolean;
  /** The id of the reservation that the operation concerns. */
  id?: string;
  /** The units that are held. */
  reserved?: number;
  /** The time at which the reservation ends unless it is committed. */
  expires_at_us?: number;
  /** The units that count for the reservation: those of the first commit. */
  charged?: number;
  /** Whether the reservation had ended before its first commit, or was never known. */
  late?: boolean;
  /** Under a limit `suppression`: the fraction of the load to refuse, in units of 2^-32. */
  factor?: number;
  /** The store could not be asked, so the policy's `on_error` has decided. Under `"local"` the numbers are those of this isolate's share. */
  degraded?: string;
}
