// Compiled, never run: what must be accepted, and what must not.
import { ArgumentError, FullError, Limiter, LimiterError, PolicyError, Reporter } from "tidegate";
import type {
  Answer, Decision, ErrorCode, Explanation, Grant, Limit, Limited, Policy, PolicyFile, ReporterDecision, Request, Span,
} from "tidegate";

const limit: Limit = { algorithm: "token_bucket", capacity: 2, rate: "3/s" };
const policy: Policy = { limits: [limit], cost: { header: "x-cost" } };
const file: PolicyFile = { policies: { api: policy } };
const gateway: PolicyFile = {
  policies: { api: { limits: [limit], key: ["jwt:sub", ["header:x-tenant", "ip"]] } },
  routes: [{ match: "/api/*", policy: "api", upstream: "https://origin.example" }],
  jwt: { algorithms: ["ES256"], keys: "JWT_KEYS", issuer: "us", audience: "api" }, trusted_proxies: ["10.0.0.0/8"], api_path: "/_tidegate",
};
new Limiter(gateway);

const limiter = new Limiter(policy, { maxBytes: 1_000_000 });
new Limiter(file, { policy: "api" });
new Limiter("limits = []");
new Limiter({
  limits: [
    { algorithm: "token_bucket", capacity: 2, rate: "3/s", start: "empty", depth: 1 },
    { algorithm: "sliding_log", rates: ["5/s", "20/m"], min_gap: "1ms", count_denied: true },
    { algorithm: "concurrency", capacity: 2, time_to_live: "10s", max_leases: 4 },
    { algorithm: "connections", limit: 2, name: "sockets" },
    { algorithm: "fleet_usage", capacity: 10, reserve: "20%", time_to_live: "10s" },
    { algorithm: "utilization", good: "70%", bad: "80%", delay: "28s", full: "2m" },
    { algorithm: "suppression", rate: "100/s", estimator: "linear_admitted", ramp: 2 },
    { algorithm: "penalty", refusals: 3, within: "1m", duration: "5m" },
  ],
  overrides: { "user:42": { capacity: 5 }, "team:*": { limits: [limit] } },
  deny: ["ip:192.0.2.0/24"], allow: ["ip:198.51.100.7"], shadow: true, ipv6_prefix: 56, classes: ["low", "high"],
});

const decision: Decision = limiter.check("key", { cost: 1, now: 0 });
const numbers: number[] = [decision.limit, decision.remaining, decision.retryAfterUs, decision.resetAfterUs];
const allowed: boolean = limiter.peek("key", { cost: 2, now: 0 }).allowed && limiter.check("key").allowed;
const request: Request = { cost: 2, class: "critical", lease: "one", signalPpm: 5, draw: 0 };
const answer: Answer = limiter.decide("key", { ...request, now: 0 });
const lease: string = limiter.acquire("key").lease;
const live: boolean | undefined = limiter.renew("key", lease, { count: 2, now: 0 }).live ?? limiter.release("key", lease, { now: 0 }).live;
const { limits: [first], wouldAllow } = limiter.settle("key", { grantedAtUs: answer.atUs, reserved: 2, actual: 1 });
const name: string | undefined = live || wouldAllow ? undefined : first?.name;
const { budget } = limiter.budget("key", "node", { wants: 5, now: 0 });
if (budget) limiter.budget("key", "node", { wants: 0, grantedAtUs: budget.grantedAtUs, left: budget.granted });
const reporter = new Reporter({ limit: "1000/s", localCap: false });
const told: ReporterDecision = reporter.decide(1, 0);
const wait: number = !told.admitted && told.reason === "capped" ? told.retryAfterUs : (name ?? "").length;
for (const report of reporter.dueReports(wait)) reporter.apply(limiter.report("key", report).factor ?? 0);
reporter.free();
reporter[Symbol.dispose]();

limiter.sweep();
limiter.sweep({ now: numbers.length + limiter.size + limiter.bytes });
limiter.free();
limiter[Symbol.dispose]();

const span: Span = "1m30s";
new Limiter({ limits: [{ algorithm: "fixed_window", limit: 1, period: "1.5s", start: "first" }] }, { maxWaiters: 5 });
const grant: Grant = limiter.decide("key", { cost: 2, limits: [limit], now: 0 });
const back: number = grant.refund() + grant.refund(1, { now: 0 });
grant.settle(1, { now: 0 });
const why: Explanation = limiter.explain("key", { cost: 2 });
console.log(why.limitName ?? why.bound, why.text, why.limits.length, back, grant.release());
async function waits(signal: AbortSignal): Promise<Grant> {
  await limiter.waitFor("key");
  return limiter.waitFor("key", { cost: 2, signal, jitter: 0 });
}
console.log(waits.length, limiter.waiting);
for (const { key, limit: limited, retryAfterUs } of limiter.limited({ now: 0 })) console.log(key, limited, retryAfterUs);
const all: Limited[] = [...limiter.limited()];
const bytes: Uint8Array = limiter.dump();
limiter.restore(bytes);
limiter.restore(bytes.buffer as ArrayBuffer);
limiter.update(file, { policy: "api" });
limiter.set("key", 2, { now: 0 });
limiter.refund("key", 1, { limits: [limit] });
limiter.block("key", span);
limiter.block("key", 5, { now: all.length });
limiter.reset("key");
limiter.resetAll();

try {
  new Limiter("");
} catch (error) {
  if (error instanceof PolicyError) console.log(error.line + error.column, error.path.length, allowed);
  if (error instanceof FullError || error instanceof ArgumentError || error instanceof LimiterError) {
    const known: ErrorCode = error.code;
    console.log(known);
  }
}

// @ts-expect-error a key is needed
limiter.check();
// @ts-expect-error a key is a string
limiter.check(5);
// @ts-expect-error numbers are plain
limiter.check("key", { cost: 1n });
// @ts-expect-error decisions are frozen
decision.allowed = true;
// @ts-expect-error the size is not set
limiter.size = 5;
// @ts-expect-error a bucket has no period
new Limiter({ limits: [{ algorithm: "token_bucket", capacity: 2, period: "1s" }] });
// @ts-expect-error there is no such algorithm
new Limiter({ limits: [{ algorithm: "leaky_bucket", capacity: 2, rate: "1/s" }] });
// @ts-expect-error there is no such option
new Limiter(policy, { maxKeys: 5 });
// @ts-expect-error the factor is in the answer to a report, as `factor`
reporter.apply(limiter.report("key", { admitted: 1, suppressed: 0 }));
// @ts-expect-error a lease is named
limiter.renew("key");
// @ts-expect-error all three are needed
limiter.settle("key", { reserved: 2, actual: 1 });
// @ts-expect-error what is left was granted at some time
limiter.budget("key", "node", { wants: 5, left: 2 });
// @ts-expect-error a request that waits has no `now`
limiter.waitFor("key", { now: 5 });
// @ts-expect-error options are an object
limiter.check("key", 1);
// @ts-expect-error limits are a list
limiter.check("key", { limits: limit });
// @ts-expect-error an error is only caught
new LimiterError("FREED", "");
// @ts-expect-error what one limit says has no shadow of its own
first?.wouldAllow;
// @ts-expect-error who is admitted need not wait
told.retryAfterUs;
// @ts-expect-error an override has the fields of limits
new Limiter({ limits: [limit], overrides: { key: { colour: 5 } } });
