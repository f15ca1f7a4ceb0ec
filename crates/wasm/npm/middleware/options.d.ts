import type { Admission, AdmitOptions, Limiter, OlderHeaders } from "tidegate";
import type { DurableLimiter } from "tidegate/durable-objects";
import type { RedisLimiter } from "tidegate/redis";
import type { RemoteLimiter } from "tidegate/remote";

/** The options of a middleware. `Request` are the arguments with which the framework calls it. */
export interface MiddlewareOptions<Request extends unknown[] = any[]> {
  /**
   * The key of a request. A number counts as its digits. Without a key, the sources of the policy find it: its field `key`, by
   * default the client's address. Beside several limiters, a list has a function for each of them.
   */
  key?: KeyOf<Request> | readonly (KeyOf<Request> | undefined)[];
  /** The cost of a request. Default: the policy's cost. */
  cost?: number | ((...request: Request) => number | undefined | Promise<number | undefined>);
  /**
   * Where the response has the true cost of its request. The `cost` is then an estimate: its units are reserved when the request
   * comes, and the true cost is committed when the response has passed. The policy must have `reservations`.
   */
  actual?: Terms;
  /** The responses that count. Requests whose response does not count get their units back. Needs `reservations` too. */
  countIf?: CountIf;
  /**
   * What is committed if the response does not tell the cost or breaks off: the estimate, or what was seen if that is more; or only
   * what was seen. Default: `"estimate"`.
   */
  ifUnknown?: "estimate" | "seen";
  /** The address from which the request came: that of a proxy if there is one, as `trusted_proxies` finds the client behind it. */
  ip?: (...request: Request) => string | undefined;
  /** An older form of the headers. Default: `RateLimit-Policy` and `RateLimit` as draft 8 and later drafts have them. */
  headers?: OlderHeaders;
  /**
   * The store that decides. Default: the limiter, in the memory of this process. Beside several limiters, a list has a store for
   * each of them.
   */
  store?: Store | readonly (Store | undefined)[];
  /** Whether a request passes without being counted, and without headers. */
  skip?: (...request: Request) => boolean | Promise<boolean>;
  /** Whether preflights of browsers count. Default: they pass as if skipped. */
  countPreflight?: boolean;
  /**
   * Changes what the client is told: the headers of any response, and the status and the body of a refusal. Returns what it changes. A
   * body of yours is `text/plain` unless you return its `content-type`, too.
   */
  respond?: (told: Told, ...request: Request) => Partial<Told> | undefined | void | Promise<Partial<Told> | undefined | void>;
  /**
   * Takes note of a lease that could not be renewed or released, of a request whose address the server does not know, and of each request
   * on which the store or the server has not decided. Default: `console.error`; of an outage a line when it begins and one when it ends.
   */
  onError?: (error: unknown) => void;
}

/** Finds the key of a request. */
export type KeyOf<Request extends unknown[] = any[]> =
  (...request: Request) => string | number | undefined | Promise<string | number | undefined>;

/** A limiter that middleware can ask: that of `tidegate`, of `tidegate/redis`, of `tidegate/durable-objects`, or of `tidegate/remote`. */
export type AnyLimiter = Limiter | RedisLimiter | DurableLimiter | RemoteLimiter;

/** A limiter; or 2 to 8 of them, which are asked one after another, all or nothing. */
export type Limiters = AnyLimiter | readonly AnyLimiter[];

/** Chooses the limiter of a request, or the list of them. The limiters are made before: each counts by itself. */
export type LimitersOf<Request extends unknown[] = any[]> = (...request: Request) => Limiters | Promise<Limiters>;

/** What a client is told. */
export interface Told {
  /** The headers to add to the response. */
  readonly headers: Admission["headers"];
  /** The response to a request that is refused. A request that is granted has none. */
  readonly refusal?: Admission["refusal"];
}

/** What a request was granted, for its handler. */
export interface Granted {
  /** The key of the request, one for each limiter. */
  readonly keys: readonly string[];
  /** The units that the limit with the fewest has left. */
  readonly remaining: number;
  /**
   * Gives back what the request was granted, once: its units come back unless a `payer` has paid them, and its lease or its reservation is
   * released. A store of your own needs `giveBack`.
   */
  giveBack(): Promise<void>;
  /**
   * Says the true cost of the request, in place of what its response tells: it is committed when the response has passed. The last word
   * before counts. The options need `actual` or `countIf`, so that the request has reserved its cost.
   *
   * @throws {TypeError} `INVALID_REQUEST` if the units are no whole number, or if the request has reserved nothing
   */
  commit(actual: number): void;
}

/** A place where the states of keys are kept. */
export interface Store {
  /** Decides on a request. */
  check(key: string, options: AdmitOptions): Promise<Admission>;
  /** Renews a lease, and returns whether it was live. */
  renew(key: string, lease: string): Promise<boolean>;
  /** Releases a lease. */
  release(key: string, lease: string): Promise<void>;
  /** Commits a reservation at its true cost, and releases the lease of the same name. Needed beside `actual` and `countIf`. */
  commit?(key: string, id: string, actual: number): Promise<void>;
  /** Gives back what a request was granted. Needed of each limiter but the last of several. */
  giveBack?(key: string, admission: Admission): Promise<void>;
}

/** Units of one kind: a number, or where it is. */
export type Term = number | ({
  /** The units that each of them counts as. Default: 1. */
  weight?: number;
  /** The number if the response does not have it. Without it, the cost of such a response is unknown. */
  otherwise?: number;
} & (
  | {
    /** A header of the response. */
    header: string;
  }
  | {
    /** The path of a field of a JSON body, or of the events of a stream, such as `"usage.total_tokens"`. The largest number at it counts. */
    field: string | string[];
  }
  | {
    /** A unit for each so many bytes of the body. */
    bytes: number;
  }
));

/** A sum of up to 8 terms. */
export type Terms = Term | Term[];

/** The responses that count. */
export type CountIf = {
  /** Statuses and ranges of them, such as `[401, "500-599"]`. */
  status: number | `${number}-${number}` | (number | `${number}-${number}`)[];
} | {
  /** A header that the response has. */
  header: string;
  /** The value of the header. Default: any. */
  value?: string;
};

export type { Admission, AdmitOptions, Limiter, OlderHeaders };
