import type { Admission, Limiter, OlderHeaders } from "tidegate";

/** The options of a middleware. `Request` are the arguments with which the framework calls it. */
export interface MiddlewareOptions<Request extends unknown[] = any[]> {
  /**
   * The key of a request. A number counts as its digits. Without a key, the sources of the policy find it: its field `key`, by
   * default the client's address.
   */
  key?: (...request: Request) => string | number | undefined | Promise<string | number | undefined>;
  /** The cost of a request. Default: the policy's cost. */
  cost?: number | ((...request: Request) => number | undefined | Promise<number | undefined>);
  /** The address from which the request came: that of a proxy if there is one, as `trusted_proxies` finds the client behind it. */
  ip?: (...request: Request) => string | undefined;
  /** An older form of the headers. Default: `RateLimit-Policy` and `RateLimit` as draft 8 and later drafts have them. */
  headers?: OlderHeaders;
  /** The store that decides. Default: the limiter, in the memory of this process. */
  store?: Store;
  /** Takes note of a lease that could not be renewed or released. Default: `console.error`. */
  onError?: (error: unknown) => void;
}

/** A place where the states of keys are kept. */
export interface Store {
  /** Decides on a request. */
  check(key: string, options: { cost?: number; headers?: OlderHeaders }): Promise<Admission>;
  /** Renews a lease, and returns whether it was live. */
  renew(key: string, lease: string): Promise<boolean>;
  /** Releases a lease. */
  release(key: string, lease: string): Promise<void>;
}

export type { Admission, Limiter, OlderHeaders };
