// Every documented use of `tidegate/redis`, checked by TypeScript.
import { Redis as Upstash } from "@upstash/redis";
import { Cluster, Redis } from "ioredis";
import { createClient, createClientPool, createCluster, createSentinel } from "redis";
import { expectTypeOf } from "expect-type";
import { rateLimit } from "tidegate/express";
import RedisDefault, { LimiterError, RedisLimiter, type Answer, type Committed, type Decision, type Explanation, type Grant, type HeldAnswer, type HeldGrant, type Ran, type Reservation } from "tidegate/redis";

const policy = { limits: [{ algorithm: "fixed_window", limit: 5, period: "1m" }] } as const;
const limits = [...policy.limits];
const limiter = new RedisLimiter({ limits }, new Redis(), { prefix: "app:", deadline: "100ms", policy: "policy" });
new RedisDefault("limits = []", createClient(), {});
for (const client of [
  new Cluster([]), createClientPool(), createCluster({ rootNodes: [] }), createSentinel({ name: "master", sentinelRootNodes: [] }), Upstash.fromEnv(),
]) new RedisLimiter({ limits }, client);
// @ts-expect-error: it needs a client
new RedisLimiter({ limits });
// @ts-expect-error: a URL is no client
new RedisLimiter({ limits }, "redis://localhost");
// @ts-expect-error: no such option
new RedisLimiter({ limits }, new Redis(), { maxBytes: 1 });
// @ts-expect-error: limits of a call are for a limiter in memory
limiter.check("a", { limits });

rateLimit(limiter, { headers: "draft-7" });

expectTypeOf(limiter.check("a", { cost: 1 })).toEqualTypeOf<Promise<Decision>>();
expectTypeOf(limiter.explain("a", { cost: 1 })).toEqualTypeOf<Promise<Explanation>>();
expectTypeOf(limiter.waitFor("a", { jitter: 0, signal: AbortSignal.timeout(1) })).toEqualTypeOf<Promise<Grant>>();
expectTypeOf(limiter.peek("a")).toEqualTypeOf<Promise<Answer>>();
expectTypeOf(limiter.decide("a", { class: "default" })).toEqualTypeOf<Promise<Grant>>();
expectTypeOf(limiter.run("a", async () => "done")).toEqualTypeOf<Promise<Ran<string>>>();
expectTypeOf(limiter.acquire("a")).toEqualTypeOf<Promise<HeldGrant>>();
expectTypeOf(limiter.renew("a", "lease", { count: 1 })).toEqualTypeOf<Promise<HeldAnswer>>();
expectTypeOf(limiter.release("a", "lease")).toEqualTypeOf<Promise<HeldAnswer>>();
expectTypeOf(limiter.budget("a", "lease", { wants: 1 })).toEqualTypeOf<Promise<HeldAnswer>>();
// @ts-expect-error: `left` needs `grantedAtUs`
limiter.budget("a", "lease", { wants: 1, left: 2 });
expectTypeOf(limiter.report("a", { admitted: 1, suppressed: 0 })).toEqualTypeOf<Promise<Answer>>();
expectTypeOf(limiter.reserve("a", { cost: 2, timeToLive: "1m" })).toEqualTypeOf<Promise<Reservation>>();
expectTypeOf(limiter.commit("a", "id", 1)).toEqualTypeOf<Promise<Committed>>();
expectTypeOf(limiter.refund("a", 1)).toEqualTypeOf<Promise<Answer>>();
expectTypeOf(limiter.reset("a").then(({ remaining }) => remaining)).toEqualTypeOf<Promise<number>>();
expectTypeOf(limiter.block("a", "1m").then(({ allowed }) => allowed)).toEqualTypeOf<Promise<boolean>>();

export async function served(): Promise<number | undefined> {
  const { allowed, degraded, retryAfterUs } = await limiter.check("a");
  expectTypeOf(allowed).toEqualTypeOf<boolean>();
  expectTypeOf(retryAfterUs).toEqualTypeOf<number | undefined>();
  const answer = await limiter.check("a");
  if (answer.degraded === undefined) expectTypeOf(answer.retryAfterUs).toEqualTypeOf<number>();
  if (degraded !== undefined) return undefined;
  try {
    await limiter.block("a", 0);
  } catch (error) {
    if (error instanceof LimiterError && error.code === "UNAVAILABLE") return 503;
  }
  await limiter.close();
  return limiter.waiting;
}
