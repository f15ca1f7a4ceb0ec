// The policy file as an object of JavaScript.

/** A span of time, such as `"90s"`, `"1.5s"` or `"1m30s"`. A number would not say its unit. */
export type Span = string;

/**
 * A limit of a policy. Its spans are texts such as `"90s"` or `"1m30s"`, its rates `"100/s"` or `"5/15m"`, its shares `"80%"`.
 */
export type Limit = Algorithm & {
  /** The name in headers and answers. Default: the policy's name; with several limits `limit-1`, `limit-2`, … */
  name?: string;
  /** The limit counts by this many parts of the key, separated by `/`; 0 counts all keys together. Default: the whole key. */
  depth?: number;
  /**
   * Whether the limit decides and counts beside the others and refuses nothing. `wouldAllow` and its entry in `limits` say what it
   * would do. Not for `budget` and `suppression`. Default: `false`.
   */
  shadow?: boolean;
  /** The used share from which on answers have `warned`, such as `"80%"`. For limits of units or places. Default: never. */
  warn_at?: string;
  /** Of the limits that pay, the first one with room for the whole cost is charged, and no other. Default: `false`. */
  payer?: boolean;
};

/** An algorithm with its fields. */
export type Algorithm =
  | TokenBucketLimit
  | FixedWindowLimit
  | CalendarLimit
  | SlidingWindowLimit
  | SlidingLogLimit
  | ConcurrencyLimit
  | ConnectionsLimit
  | BudgetLimit
  | FleetUsageLimit
  | UtilizationLimit
  | SuppressionLimit
  | PenaltyLimit;

/** In any span of length L at most `capacity` + `rate`·L. */
export interface TokenBucketLimit {
  /** The algorithm. */
  algorithm: "token_bucket";
  /** The tokens of a full bucket: the most units at once. */
  capacity: number;
  /** The tokens that come back, such as `"100/s"`. */
  rate: string;
  /** The bucket of a key never seen. Default: `"full"`. */
  start?: "full" | "empty";
}

/** At most `limit` in a window. */
export interface FixedWindowLimit {
  /** The algorithm. */
  algorithm: "fixed_window";
  /** The most units in a window. */
  limit: number;
  /** The length of a window, such as `"1h"`. */
  period: string;
  /**
   * The start of a window: a multiple of `period` since the Unix epoch, or the first request that is granted outside of a
   * window. Default: `"aligned"`.
   */
  start?: "aligned" | "first";
}

/** At most `limit` in each day, week, month, quarter or year of a time zone. */
export interface CalendarLimit {
  /** The algorithm. */
  algorithm: "calendar";
  /** The most units in a window. */
  limit: number;
  /** What a window is. */
  period: "day" | "week" | "month" | "quarter" | "year";
  /** The IANA time zone, such as `"Europe/Madrid"`. It needs `zone_data`. Default: `"UTC"`. */
  timezone?: string;
  /** What the time zone's clocks do, as `tidegate check --compile` writes it. */
  zone_data?: string;
  /**
   * The day on which a window begins: a day of the month, or for quarters and years a month and a day such as `"04-06"`. In
   * a month without this day a window begins on the last day. Default: the first day.
   */
  anchor?: number | string;
  /** The first day of a week. Default: `"monday"`. */
  week_start?: "monday" | "tuesday" | "wednesday" | "thursday" | "friday" | "saturday" | "sunday";
}

/** An estimate of the units in the last `period`, which weights the oldest segment, never exceeds `limit`. */
export interface SlidingWindowLimit {
  /** The algorithm. */
  algorithm: "sliding_window";
  /** The most units in a window. */
  limit: number;
  /** The length of a window, such as `"1h"`. */
  period: string;
  /** The segments of a window, from 1 to 120; the more, the closer the estimate. Default: 1. */
  segments?: number;
}

/** At most the units of each rate in every span of its length. */
export interface SlidingLogLimit {
  /** The algorithm. */
  algorithm: "sliding_log";
  /** From 1 to 8 rates such as `"10/m"`, each of at most 1,000 units. */
  rates: string[];
  /** The shortest span between two requests. Default: none. */
  min_gap?: string;
  /** Whether refused requests count too, so that a caller that never stops never passes. Default: false. */
  count_denied?: boolean;
}

/** Never more than `capacity` leases at once. */
export interface ConcurrencyLimit {
  /** The algorithm. */
  algorithm: "concurrency";
  /** The most leases at once. */
  capacity: number;
  /** The span for which a lease lasts after it was acquired or last renewed. */
  time_to_live: string;
  /** The leases for which a state has room. Default: the capacity, at most 4,096. */
  max_leases?: number;
}

/** No connection is opened that would make the live owners exceed `limit`. */
export interface ConnectionsLimit {
  /** The algorithm. */
  algorithm: "connections";
  /** The most connections at once, of all owners together. */
  limit: number;
  /** The span of silence after which an owner is forgotten with its connections. Default: `"10m"`. */
  expiry?: string;
  /** The owners for which a state has room, from 1 to 4,096. Default: 64. */
  max_owners?: number;
}

/** Holders spend units of the other limits without asking: in any span of length L at most what these grant in L + `time`. */
export interface BudgetLimit {
  /** The algorithm. */
  algorithm: "budget";
  /** The most units that a holder may have at once. */
  most: number;
  /** The span in which a holder may spend them. */
  time: string;
  /** The holders for which a state has room, from 1 to 4,096. Default: 64. */
  max_holders?: number;
}

/** The classes below the most important one never hold more than `capacity` less `reserve`. */
export interface FleetUsageLimit {
  /** The algorithm. */
  algorithm: "fleet_usage";
  /** The most leases at once, of all classes together. */
  capacity: number;
  /** The share of the capacity that only the most important class may use, such as `"20%"`. */
  reserve: string;
  /** The span for which a lease lasts after it was acquired or last renewed. */
  time_to_live: string;
  /** The leases for which a state has room. Default: the capacity, at most 4,096. */
  max_leases?: number;
}

/** Sheds one class after another by the measured `signalPpm` of the requests. */
export interface UtilizationLimit {
  /** The algorithm. */
  algorithm: "utilization";
  /** The signal below which less and less is shed. Default: `"70%"`. */
  good?: string;
  /** The signal above which more and more is shed. Default: `"80%"`. */
  bad?: string;
  /** The span of a signal of 100 % after which shedding begins. Default: `"28s"`. */
  delay?: string;
  /** The span of a signal of 100 %, after `delay`, after which everything is shed. Default: `"120s"`. */
  full?: string;
}

/** Refuses a fraction of an account's load. An account within `rate` in every part of 6 s is never suppressed. */
export interface SuppressionLimit {
  /** The algorithm. */
  algorithm: "suppression";
  /** The rate that the account may have, over all reporters together. */
  rate: string;
  /** The estimate of the account's load. Default: `"newest_part"`. */
  estimator?: "newest_part" | "modified_mean" | "linear_admitted";
  /** Only beside `linear_admitted`: everything is refused at 1 + `ramp` times the rate. Default: 2. */
  ramp?: number;
}

/** Refuses everything for a span when the other limits have refused too often. */
export interface PenaltyLimit {
  /** The algorithm. */
  algorithm: "penalty";
  /** The refusals, from 1 to 100, after which a penalty begins. */
  refusals: number;
  /** The span within which these refusals count. */
  within: string;
  /** The length of the first penalty. Each further penalty is twice as long. */
  duration: string;
  /** The longest length of a penalty. Default: `duration`. */
  max?: string;
  /** The span after its end after which a penalty is forgotten. Default: `duration`. */
  forgive_after?: string;
}

/** Other numbers for the policy's only limit, or other limits, for some keys. */
export type Override = OtherLimits | Partial<Fields<Limit>>;

/** Other limits for some keys. */
export interface OtherLimits {
  /** The limits in place of the policy's own. */
  limits: Limit[];
}

/** The fields of all members of a union. */
export type Fields<T> = { [K in T extends unknown ? keyof T : never]: T extends { [P in K]?: infer V } ? V : never };

/** A policy of up to 16 limits, which are decided all or nothing. */
export interface Policy {
  /** A text for people; not used here. */
  description?: string;
  /** From 1 to 16 limits. */
  limits: Limit[];
  /**
   * Limits for some keys. The name is a key, a key in which one `*` matches any characters, or a network
   * such as `ip:192.0.2.0/24`.
   */
  overrides?: Record<string, Override>;
  /** Keys that never pass, written as in `overrides`. */
  deny?: string[];
  /** Keys that always pass unless they are denied. */
  allow?: string[];
  /** Decides and reports but refuses no request: see `wouldAllow`. Default: false. */
  shadow?: boolean;
  /** The number of leading bits by which keys `ip:…` of IPv6 are counted. Default: 64. */
  ipv6_prefix?: number;
  /** Classes from the least to the most important, which is never shed. Default: `["default", "critical"]`. */
  classes?: string[];
  /** Where middleware finds the key: the first source that a request has. Default: `["ip"]`. */
  key?: (string | string[])[];
  /** The cost of a request that names no cost. The header is not read here. Default: 1. */
  cost?: number | CostHeader;
  /**
   * What decides when the store cannot be asked; only for `tidegate/redis` and `tidegate/durable-objects`. `"local"` is this limiter's share of
   * the limits. Default: `"closed"`.
   */
  on_error?: "open" | "closed" | "local";
  /**
   * The least number of nodes among which the limits are divided under `on_error: "local"`; only for `tidegate/redis` and
   * `tidegate/durable-objects`.
   */
  nodes?: number;
  /**
   * The effect of an edit, such as `update`, on the units that a changed limit counts as used. They are kept only if the policy before the
   * edit had `"keep"` or `"proportional"`, too. Default: `"keep"`.
   */
  on_change?: "keep" | "reset" | "proportional";
  /** What `Retry-After` of a refusal by a limit on leases is at most. Default: `"5s"`. */
  lease_retry_after?: string;
  /** How long the answer to a call over HTTP with an `Idempotency-Key` is kept; not used here. */
  idempotency?: string;
  /** How long a node may repeat a refusal without asking; only for `tidegate/redis` and `tidegate/durable-objects`. */
  remember?: string;
  /** The units that a node may spend without asking; only for `tidegate/redis` and `tidegate/durable-objects`. */
  local?: Omit<BudgetLimit, "algorithm">;
  /** Whether nodes decide by the factor of a `suppression` and report; only for `tidegate/redis` and `tidegate/durable-objects`. */
  reports?: boolean;
  /** What a key may reserve with `reserve`, for requests whose true cost is known later. */
  reservations?: Reservations;
  /** How far a Durable Object may store states before it grants them; only for `tidegate/durable-objects`. */
  persist_ahead?: Partial<Pick<BudgetLimit, "most" | "time">>;
  /** Whether checks of an isolate share a call to a Durable Object; only for `tidegate/durable-objects`. Default: `true`. */
  share_calls?: boolean;
  /** The assignment of keys to Durable Objects; only for `tidegate/durable-objects`. */
  placement?: string;
}

/** What a key may reserve. */
export interface Reservations {
  /** The most reservations of a key: live ones, and those that ended less than `remember` ago; at most 1,000. Default: 100. */
  most?: number;
  /** The longest span for which units are held. Default: `"5m"`. */
  time_to_live?: string;
  /** How long the key remembers how a reservation ended, so that a repeated commit changes nothing. Default: `"10s"`. */
  remember?: string;
  /** What becomes of a reservation that nobody commits: its units come back, or stay charged. Default: `"release"`. */
  on_expiry?: "release" | "charge";
  /** The largest share of the limits that one reservation may hold, such as `"25%"`. A larger estimate is cut to it. */
  largest_share?: string;
}

/** A policy file, which the Worker and the native host read too. */
export interface PolicyFile {
  /** Whether a server without a token admits callers; not used here. */
  auth?: "token" | "none";
  /** The policies by their names. */
  policies: Record<string, Policy>;
  /** The routes of the Worker as a gateway; not used here. */
  routes?: Route[];
  /** The path of the Worker's decision API; not used here. */
  api_path?: string;
  /** The path of the Worker's health beside its routes; not used here. */
  health_path?: string;
  /** The networks of proxies that middleware believes about a client's address. */
  trusted_proxies?: string[];
  /** How tokens are read. Middleware verifies none. */
  jwt?: Tokens;
}

/** A policy or a policy file in TOML, as `toml` of the entry `tidegate/toml` returns it. */
export interface TomlPolicy {
  /** The format of the text. */
  readonly format: "TOML";
  /** The text, which the limiter reads. */
  readonly text: string;
}

/** One policy or a policy file: an object, a text in JSON, or what `toml` of `tidegate/toml` returns. */
export type AnyPolicy = Policy | PolicyFile | TomlPolicy | string;

/** A cost that a request names in a header. */
export interface CostHeader {
  /** The name of the header. */
  header: string;
  /** The cost of a request without the header. Default: 1. */
  default?: number;
}

/** A route of the Worker as a gateway. */
export interface Route {
  /** The paths, such as `"/api/*"`. */
  match: string;
  /** The methods of HTTP. Default: all. */
  methods?: string[];
  /** The name of the policy that decides. Default: none. */
  policy?: string;
  /** In place of `policy`: 2 to 8 policies that decide one after another, all or nothing. */
  policies?: string[];
  /** The class of the requests. Default: the least important one. */
  class?: string;
  /** What a request costs. Default: the cost of the policy. */
  cost?: number;
  /** Whether preflights of browsers are counted. Default: `false`. */
  count_preflight?: boolean;
  /** The origins whose pages may read the gateway's own answers. */
  origins?: string[];
  /** The address to which granted requests go. */
  upstream?: string;
}

/** How the Worker reads tokens. */
export interface Tokens {
  /** The algorithms of valid signatures. */
  algorithms: ("HS256" | "RS256" | "ES256")[];
  /** The name of the variable that has the keys. */
  keys: string;
  /** The place of the token in a request. Default: the header `Authorization`. */
  source?: string;
  /** The issuer that a token must name. Default: any. */
  issuer?: string;
  /** The audience that a token must name. Default: any. */
  audience?: string;
}
