// The tests compile this file and never run it. It says the type of every call, and what a call must accept and refuse.
import { expectTypeOf } from "expect-type";
import preferred, { ArgumentError, FullError, Limiter, LimiterError, PolicyError, Reporter } from "tidegate";
import preferredToml, { toml } from "tidegate/toml";
import type {
  Admission, AdmitOptions, Answer, AnyPolicy, Budget, CheckOptions, Committed, Decision, ErrorCode, Explanation, Grant, HeldAnswer, HeldGrant, Limit,
  LimitAnswer, Limited, LimiterOptions, OlderHeaders, Options, Policy, PolicyFile, Ran, Report, ReporterDecision, ReporterOptions, Request, Reservation,
  ReserveRequest, Signal, Span, TomlPolicy, WaitOptions, WantedBudget,
} from "tidegate";

expectTypeOf(preferred).toEqualTypeOf<typeof Limiter>();

// policies

const limit: Limit = { algorithm: "token_bucket", capacity: 2, rate: "3/s" };
const policy: Policy = { limits: [limit], cost: { header: "x-cost" } };
const file: PolicyFile = { policies: { api: policy } };
const elsewhere: Policy = { limits: [limit], remember: "2s", local: { most: 5, time: "1s" }, reports: false, persist_ahead: { most: 5 } };
const reserving: Policy = { limits: [limit], reservations: { most: 5, time_to_live: "1m", remember: "1s", on_expiry: "charge", largest_share: "25%" } };
const gateway: PolicyFile = {
  policies: { api: { limits: [limit], key: ["jwt:sub", ["header:x-tenant", "ip"]] } },
  routes: [{
    match: "/api/*", policy: "api", upstream: "https://origin.example", class: "critical", cost: 2, count_preflight: true, origins: ["*"],
  }],
  health_path: "/healthz",
  jwt: { algorithms: ["ES256"], keys: "JWT_KEYS", issuer: "us", audience: "api" }, trusted_proxies: ["10.0.0.0/8"], api_path: "/_tidegate",
};

expectTypeOf<AnyPolicy>().toEqualTypeOf<Policy | PolicyFile | TomlPolicy | string>();
expectTypeOf(toml).toEqualTypeOf<(text: string) => TomlPolicy>();
expectTypeOf(preferredToml).toEqualTypeOf<typeof toml>();
expectTypeOf(Limiter).constructorParameters.toEqualTypeOf<[policy: AnyPolicy, options?: LimiterOptions]>();
expectTypeOf<LimiterOptions>().toEqualTypeOf<{ policy?: string; maxBytes?: number; maxWaiters?: number }>();
expectTypeOf(Limiter).toBeConstructibleWith(toml("limits = []"), { policy: "api" });
// @ts-expect-error only `toml` makes a policy of a text in TOML
expectTypeOf(Limiter).toBeConstructibleWith({ text: "limits = []" });
expectTypeOf(Limiter).toBeConstructibleWith(policy, { maxBytes: 1_000_000, maxWaiters: 5 });
expectTypeOf(Limiter).toBeConstructibleWith(reserving);
expectTypeOf(Limiter).toBeConstructibleWith(file, { policy: "api" });
expectTypeOf(Limiter).toBeConstructibleWith(gateway);
expectTypeOf(Limiter).toBeConstructibleWith(elsewhere);
expectTypeOf(Limiter).toBeConstructibleWith("limits = []");
expectTypeOf(Limiter).toBeConstructibleWith({
  limits: [
    { algorithm: "token_bucket", capacity: 2, rate: "3/s", start: "empty", depth: 1 },
    { algorithm: "fixed_window", limit: 1, period: "1.5s", start: "first" },
    { algorithm: "calendar", limit: 1, period: "month", anchor: 31, timezone: "Asia/Tokyo", zone_data: "2026a 0+32400 4102444800" },
    { algorithm: "calendar", limit: 1, period: "week", week_start: "sunday" },
    { algorithm: "sliding_window", limit: 1, period: "1m30s", segments: 4 },
    { algorithm: "sliding_log", rates: ["5/s", "20/m"], min_gap: "1ms", count_denied: true },
    { algorithm: "concurrency", capacity: 2, time_to_live: "10s", max_leases: 4 },
    { algorithm: "connections", limit: 2, name: "sockets" },
    { algorithm: "budget", most: 5, time: "10s" },
    { algorithm: "fixed_window", limit: 1, period: "1m", shadow: true, warn_at: "80%" },
    { algorithm: "fleet_usage", capacity: 10, reserve: "20%", time_to_live: "10s" },
    { algorithm: "utilization", good: "70%", bad: "80%", delay: "28s", full: "2m" },
    { algorithm: "suppression", rate: "100/s", estimator: "linear_admitted", ramp: 2 },
    { algorithm: "penalty", refusals: 3, within: "1m", duration: "5m" },
  ],
  overrides: { "user:42": { capacity: 5 }, "team:*": { limits: [limit] } },
  deny: ["ip:192.0.2.0/24"], allow: ["ip:198.51.100.7"], shadow: true, lease_retry_after: "2s", idempotency: "1d", ipv6_prefix: 56, classes: ["low", "high"],
});
// @ts-expect-error a policy is needed
new Limiter();
new Limiter(policy).update(policy, { now: 5 });
// @ts-expect-error there is no such option
new Limiter(policy, { maxKeys: 5 });
// @ts-expect-error there is no such field
new Limiter({ limits: [limit], limit });
// @ts-expect-error a bucket has no period
new Limiter({ limits: [{ algorithm: "token_bucket", capacity: 2, period: "1s" }] });
// @ts-expect-error a calendar has no such period
new Limiter({ limits: [{ algorithm: "calendar", limit: 2, period: "1d" }] });
// @ts-expect-error there is no such algorithm
new Limiter({ limits: [{ algorithm: "leaky_bucket", capacity: 2, rate: "1/s" }] });
// @ts-expect-error an override has the fields of limits
new Limiter({ limits: [limit], overrides: { key: { colour: 5 } } });

// answers

type Numbers = { readonly allowed: boolean; readonly limit: number; readonly remaining: number; readonly retryAfterUs: number; readonly resetAfterUs: number };
expectTypeOf<Pick<Decision, keyof Numbers>>().toEqualTypeOf<Numbers>();
expectTypeOf<Omit<Decision, keyof Numbers>>().toEqualTypeOf<{ readonly denied?: true; readonly wouldAllow?: boolean; readonly warned?: true }>();
expectTypeOf<Omit<Answer, keyof Decision>>().toEqualTypeOf<{
  readonly atUs: number;
  readonly limits: readonly LimitAnswer[];
  readonly lease?: string;
  readonly live?: boolean;
  readonly factor?: number;
  readonly wouldFactor?: number;
  readonly budget?: Budget;
  readonly paidBy?: string;
}>();
expectTypeOf<Answer>().toExtend<Decision>();
expectTypeOf<LimitAnswer>().branded.toEqualTypeOf<Numbers & { readonly name: string; readonly warned?: true; readonly shadow?: true; readonly zoneData?: string }>();
expectTypeOf<Budget>().toEqualTypeOf<{ readonly granted: number; readonly grantedAtUs: number; readonly expiresAtUs: number }>();
expectTypeOf<Omit<Explanation, keyof Answer>>().toEqualTypeOf<{ readonly limitName?: string; readonly bound: string; readonly text: string }>();
expectTypeOf<Explanation>().toExtend<Answer>();
expectTypeOf<Limited>().toEqualTypeOf<{ readonly key: string; readonly limit?: string; readonly retryAfterUs: number }>();

const limiter = new Limiter(policy);
const decision = limiter.check("key");
// @ts-expect-error decisions are read-only
decision.allowed = true;
// @ts-expect-error so are the limits of an answer
limiter.peek("key").limits.push();

// options

expectTypeOf<Options>().toEqualTypeOf<{ now?: number; limits?: Limit[] }>();
expectTypeOf<Omit<CheckOptions, keyof Options>>().toEqualTypeOf<{ cost?: number }>();
expectTypeOf<Omit<Request, keyof Options>>().toEqualTypeOf<{ cost?: number; class?: string; lease?: string; signalPpm?: number; draw?: number }>();
expectTypeOf<Omit<WaitOptions, keyof Request>>().toEqualTypeOf<{ signal?: Signal; jitter?: number }>();
expectTypeOf<AbortSignal>().toExtend<Signal>();
expectTypeOf<Span>().toEqualTypeOf<string>();

// every call of a limiter

type Calls = "check" | "decide" | "peek" | "explain" | "waitFor" | "acquire" | "run" | "renew" | "release" | "budget" | "reserve" | "commit" | "refund" | "reset"
  | "resetAll" | "set" | "block" | "report" | "dump" | "restore" | "update" | "limited" | "sweep" | "free" | "prepare" | "keyOf" | "admit" | "giveBack";
expectTypeOf<keyof Limiter>().toEqualTypeOf<Calls | "size" | "bytes" | "waiting" | typeof Symbol.dispose>();

expectTypeOf<Omit<HeldAnswer, keyof Answer>>().toEqualTypeOf<{}>();
expectTypeOf<HeldAnswer["lease"]>().toEqualTypeOf<string>();
expectTypeOf<HeldGrant>().toExtend<Grant & HeldAnswer>();
expectTypeOf(limiter.check).toEqualTypeOf<(key: string, options?: CheckOptions) => Decision>();
expectTypeOf(limiter.decide).toEqualTypeOf<(key: string, request?: Request) => Grant>();
expectTypeOf(limiter.peek).toEqualTypeOf<(key: string, request?: Request) => Answer>();
expectTypeOf(limiter.explain).toEqualTypeOf<(key: string, request?: Request) => Explanation>();
expectTypeOf(limiter.waitFor).toEqualTypeOf<(key: string, options?: WaitOptions) => Promise<Grant>>();
expectTypeOf(limiter.run("key", () => 5, { lease: "a" })).toEqualTypeOf<Promise<Ran<number>>>();
limiter.run("key", async (signal) => fetch("https://origin.example", { signal })).then((ran) => {
  if (ran.allowed) expectTypeOf(ran.value).toEqualTypeOf<Response>();
  else expectTypeOf(ran.retryAfterUs).toEqualTypeOf<number>();
  // @ts-expect-error the request may have been refused
  ran.value.status;
});
// @ts-expect-error a lease that is renewed goes by the clock
limiter.run("key", () => 5, { now: 5 });
expectTypeOf(limiter.acquire).toEqualTypeOf<(key: string, request?: Request) => HeldGrant>();
expectTypeOf(limiter.renew).toEqualTypeOf<(key: string, lease: string, options?: Options & { count?: number }) => HeldAnswer>();
expectTypeOf(limiter.release).toEqualTypeOf<(key: string, lease: string, options?: Options) => HeldAnswer>();
expectTypeOf(limiter.budget).toEqualTypeOf<(key: string, lease: string, wanted: WantedBudget) => HeldAnswer>();
expectTypeOf(limiter.reserve).toEqualTypeOf<(key: string, request?: ReserveRequest) => Reservation>();
expectTypeOf(limiter.commit).toEqualTypeOf<(key: string, id: string, actual: number, options?: { now?: number }) => Committed>();
expectTypeOf<Omit<Reservation, keyof Answer>>().toEqualTypeOf<{ readonly id: string; readonly reserved?: number; readonly expiresAtUs?: number }>();
expectTypeOf<Omit<Committed, keyof Answer>>().toEqualTypeOf<{ readonly id: string; readonly charged?: number; readonly late?: boolean }>();
expectTypeOf(limiter.refund).toEqualTypeOf<(key: string, units: number, options?: Options) => Answer>();
expectTypeOf(limiter.reset).toEqualTypeOf<(key: string, options?: Options) => Answer>();
expectTypeOf(limiter.resetAll).toEqualTypeOf<() => void>();
expectTypeOf(limiter.set).toEqualTypeOf<(key: string, used: number, options?: Options) => Answer>();
expectTypeOf(limiter.block).toEqualTypeOf<(key: string, span: Span | 0, options?: Options) => Answer>();
expectTypeOf(limiter.report).toEqualTypeOf<(key: string, report: Report & Options) => Answer>();
expectTypeOf(limiter.dump).returns.toExtend<Uint8Array>();
expectTypeOf(limiter.restore).toEqualTypeOf<(dump: ArrayBuffer | ArrayBufferView) => void>();
expectTypeOf(limiter.restore).toBeCallableWith(limiter.dump());
expectTypeOf(limiter.update).toEqualTypeOf<(policy: AnyPolicy, options?: { policy?: string; now?: number }) => void>();
expectTypeOf(limiter.limited).toEqualTypeOf<(options?: { now?: number }) => IterableIterator<Limited>>();
expectTypeOf(limiter.sweep).toEqualTypeOf<(options?: { now?: number }) => void>();
expectTypeOf(limiter.free).toEqualTypeOf<() => void>();
expectTypeOf(limiter[Symbol.dispose]).toEqualTypeOf<() => void>();
expectTypeOf<Pick<Limiter, "size" | "bytes" | "waiting">>().toEqualTypeOf<{ readonly size: number; readonly bytes: number; readonly waiting: number }>();

// @ts-expect-error a key is needed
limiter.check();
// @ts-expect-error a key is a string
limiter.check(5);
// @ts-expect-error options are an object
limiter.check("key", 1);
// @ts-expect-error numbers are plain
limiter.check("key", { cost: 1n });
// @ts-expect-error limits are a list
limiter.check("key", { limits: limit });
// @ts-expect-error `check` knows no class
limiter.check("key", { class: "critical" });
// @ts-expect-error a request that waits has no `now`
limiter.waitFor("key", { now: 5 });
// @ts-expect-error a lease is named
limiter.renew("key");
// @ts-expect-error the units are needed
limiter.refund("key");
// @ts-expect-error `left` needs `grantedAtUs`
limiter.budget("key", "node", { wants: 5, left: 2 });
// @ts-expect-error a span is needed
limiter.block("key");
// @ts-expect-error a dump is bytes
limiter.restore("dump");
// @ts-expect-error the size is not set
limiter.size = 5;

// what middleware asks

expectTypeOf(limiter.prepare).toEqualTypeOf<<T extends object>(options: T, among?: { isLast: boolean }) => T>();
expectTypeOf(limiter.keyOf).returns.toEqualTypeOf<string | Admission>();
expectTypeOf(limiter.keyOf).toBeCallableWith({ header: () => undefined, query: "", ip: "192.0.2.1" });
expectTypeOf(limiter.admit).toEqualTypeOf<(key: string, options?: AdmitOptions) => Admission>();
expectTypeOf<AdmitOptions>().toEqualTypeOf<{ cost?: number; headers?: OlderHeaders; reserves?: boolean; isOneOfSeveral?: boolean; mayComeBack?: boolean }>();
expectTypeOf(limiter.giveBack).toEqualTypeOf<(key: string, admission: Admission) => void>();
expectTypeOf<OlderHeaders>().toEqualTypeOf<"draft-6" | "draft-7" | "x-ratelimit">();
expectTypeOf<Admission>().toEqualTypeOf<{
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly refusal?: { readonly status: number; readonly body: string };
  readonly lease?: { readonly name: string; readonly renewEveryUs: number };
  readonly reservation?: { readonly id: string; readonly units: number };
  readonly grant?: { readonly atUs: number; readonly units: number };
  readonly remaining?: number;
  readonly degraded?: string;
}>();

// grants

expectTypeOf<Grant>().toExtend<Answer>();
expectTypeOf<Omit<Grant, keyof Answer>>().toEqualTypeOf<{
  refund(units?: number, options?: { now?: number }): Answer | undefined;
  renew(options?: { count?: number; now?: number }): Answer;
  release(options?: { now?: number }): boolean;
  [Symbol.dispose](): void;
  [Symbol.asyncDispose](): Promise<void>;
}>();

// reporters

expectTypeOf(Reporter).constructorParameters.toEqualTypeOf<[options: ReporterOptions]>();
expectTypeOf<ReporterOptions>().toEqualTypeOf<{ limit: string; localCap?: boolean }>();
expectTypeOf<keyof Reporter>().toEqualTypeOf<"decide" | "dueReports" | "apply" | "free" | typeof Symbol.dispose>();
const reporter = new Reporter({ limit: "1000/s" });
expectTypeOf(reporter.decide).toEqualTypeOf<(units?: number, now?: number) => ReporterDecision>();
expectTypeOf(reporter.dueReports).toEqualTypeOf<(now?: number) => Required<Report>[]>();
expectTypeOf(reporter.apply).toEqualTypeOf<(factor: number, now?: number) => void>();
expectTypeOf(reporter.free).toEqualTypeOf<() => void>();
expectTypeOf(reporter[Symbol.dispose]).toEqualTypeOf<() => void>();
for (const report of reporter.dueReports()) expectTypeOf(limiter.report).toBeCallableWith("key", report);
const told = reporter.decide();
if (told.admitted) expectTypeOf(told).toEqualTypeOf<{ readonly admitted: true }>();
else if (told.reason === "capped") expectTypeOf(told.retryAfterUs).toEqualTypeOf<number>();
else expectTypeOf(told.reason).toEqualTypeOf<"suppressed">();
// @ts-expect-error a rate is needed
new Reporter({});
// @ts-expect-error the factor is in the answer to a report, as `factor`
reporter.apply(limiter.report("key", { admitted: 1, suppressed: 0 }));
// @ts-expect-error a request that is admitted need not wait
told.retryAfterUs;

// errors

expectTypeOf<LimiterError>().toExtend<Error>();
expectTypeOf<LimiterError["code"]>().toEqualTypeOf<ErrorCode>();
expectTypeOf<ErrorCode>().not.toEqualTypeOf<string>();
expectTypeOf<PolicyError>().toExtend<LimiterError>();
expectTypeOf<PolicyError["code"]>().toEqualTypeOf<"INVALID_POLICY" | "UNKNOWN_POLICY">();
expectTypeOf<Pick<PolicyError, "line" | "column" | "path">>().toEqualTypeOf<{ readonly line: number; readonly column: number; readonly path: string }>();
expectTypeOf<ArgumentError>().toExtend<LimiterError>();
expectTypeOf<FullError>().toExtend<LimiterError>();
expectTypeOf<FullError["code"]>().toEqualTypeOf<"TABLE_FULL" | "TOO_MANY_LIMITS" | "TOO_MANY_WAITERS">();
const caught: unknown = undefined;
if (caught instanceof PolicyError) expectTypeOf(caught.path).toEqualTypeOf<string>();
if (caught instanceof LimiterError && caught.code === "FREED") expectTypeOf(caught.code).toEqualTypeOf<"FREED">();
// @ts-expect-error an error is only caught
new LimiterError("FREED", "");
// @ts-expect-error there is no such code
if (caught instanceof LimiterError && caught.code === "RATE_LIMITED") console.log(caught);
