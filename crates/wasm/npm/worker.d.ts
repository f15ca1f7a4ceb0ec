/**
 * `tidegate/worker`: the whole Cloudflare Worker, built. The fields of requests and answers are those of the HTTP API,
 * which docs/http.md in the repository of Tidegate explains.
 */

/** The handler of a Worker that decides by this text of a policy file (TOML or JSON). */
export function tidegate(policies: string): {
  fetch(request: Request, env: unknown, context: unknown): Promise<Response>;
};

/** The Durable Object that holds the states of keys. Bind it as `KEYS`. */
export class Keys {
  constructor(state: unknown, env: unknown);
}

/** The calls for other Workers, whose service binding says `entrypoint = "Tidegate"`. They need no token. */
export class Tidegate {
  constructor(context: unknown, env: unknown);
  /** The HTTP API. The request needs its token. */
  fetch(request: Request): Promise<Response>;
  /** Decides whether a request may pass. A refusal is an answer, too; a problem is thrown. */
  check(check: Check): Promise<Decision>;
  /** Decides several checks in their order. */
  check(batch: { checks: Check[] }): Promise<{ decisions: Decision[] }>;
  /** Says whether a request would pass, and takes nothing. The default cost is 0. */
  peek(check: Key & Pick<Check, "cost" | "class">): Promise<Decision>;
  /** Acquires a lease. */
  acquire(check: Check): Promise<Decision>;
  /** Keeps a lease. */
  renew(lease: Lease & { count?: number }): Promise<Decision>;
  /** Gives a lease back. */
  release(lease: Lease): Promise<Decision>;
  /** Tells the true cost of a request that passed on an estimate, or gives unused units back. */
  settle(settlement: Key & (Estimate | { refund: number })): Promise<Decision>;
}

export interface Key {
  policy: string;
  key: string;
}

export interface Check extends Key {
  cost?: number;
  class?: string;
  lease?: string;
  signal_ppm?: number;
}

export interface Lease extends Key {
  lease: string;
}

export interface Estimate {
  granted_at_us: number;
  reserved: number;
  actual: number;
}

/** What one limit says. */
export interface LimitDecision {
  name: string;
  allowed: boolean;
  limit: number;
  remaining: number;
  retry_after_us: number;
  reset_after_us: number;
}

export interface Decision extends Omit<LimitDecision, "name"> {
  policy: string;
  at_us: number;
  limits: LimitDecision[];
  would_allow?: boolean;
  lease?: string;
  live?: boolean;
  factor?: number;
  /** The store could not be asked, so the policy's `on_error` has decided. */
  degraded?: string;
}
