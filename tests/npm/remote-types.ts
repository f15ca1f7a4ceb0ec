// Every documented use of `tidegate/remote`, checked by TypeScript.
import { expectTypeOf } from "expect-type";
import RemoteDefault, {
  LimiterError, RemoteLimiter, type Answer, type AsyncLimiter, type Committed, type Decision, type Explanation, type Grant, type HeldAnswer, type HeldGrant, type Ran, type Reservation,
} from "tidegate/remote";
import { metering, type Admission, type Metering } from "tidegate";
import { RedisLimiter } from "tidegate/redis";
import { rateLimit } from "tidegate/express";

const limiter = new RemoteLimiter({ url: "https://limiter.example", policy: "api", token: "secret", deadline: "100ms", onError: "open", fetch });
new RemoteDefault({ url: "https://limiter.example", policy: "api", fetch: async (url, init) => fetch(url, { ...init, cache: "no-store" }) });
expectTypeOf(metering).toEqualTypeOf<Metering>();
rateLimit(new RemoteLimiter({ url: "https://limiter.example", policy: "tokens", metering }), { key: (request) => request.get("x-user"), actual: { field: "used" } });
// @ts-expect-error: it needs the name of a policy
new RemoteLimiter({ url: "https://limiter.example" });
// @ts-expect-error: only a node of its own decides by a share
new RemoteLimiter({ url: "https://limiter.example", policy: "api", onError: "local" });
// @ts-expect-error: the server has the limits
limiter.check("a", { limits: [] });
// @ts-expect-error: the server has the time
limiter.decide("a", { now: 1 });
// @ts-expect-error: a peek takes nothing
limiter.peek("a", { idempotencyKey: "x" });
rateLimit(limiter, { key: (request) => request.get("x-user") });

const { signal } = new AbortController();
const once = { signal, idempotencyKey: "8e03978e" };
expectTypeOf(limiter.check("a", { cost: 1, ...once })).toEqualTypeOf<Promise<Decision>>();
expectTypeOf(limiter.peek("a", { cost: 1, class: "default", signal })).toEqualTypeOf<Promise<Answer>>();
expectTypeOf(limiter.explain("a", { cost: 1, class: "default", lease: "b", signalPpm: 1, signal })).toEqualTypeOf<Promise<Explanation>>();
expectTypeOf(limiter.decide("a", { class: "default", lease: "b", signalPpm: 1, ...once })).toExtend<Promise<Answer>>();
expectTypeOf(limiter.acquire("a", once)).toExtend<Promise<HeldAnswer>>();
expectTypeOf(limiter.run("a", async ({ aborted }) => String(aborted), once)).toEqualTypeOf<Promise<Ran<string>>>();
limiter.decide("a", { cost: 2 }).then((grant) => grant.refund(1, once));
expectTypeOf(limiter.admit("a", { cost: 1, headers: "draft-6", reserves: true, isOneOfSeveral: true, mayComeBack: true })).toEqualTypeOf<Promise<Admission>>();
expectTypeOf(limiter.giveBack("a", { headers: [] })).toEqualTypeOf<Promise<void>>();
expectTypeOf(limiter.waitFor("a", { cost: 1, jitter: 0, signal })).toExtend<Promise<Answer>>();
// @ts-expect-error: the server has the limits
limiter.waitFor("a", { limits: [] });
// @ts-expect-error: a function is needed
limiter.run("a");
// @ts-expect-error: a number would not say its unit
new RemoteLimiter({ url: "https://limiter.example", policy: "api", deadline: 100 });
// @ts-expect-error: nor would one here
limiter.block("a", 60_000);
expectTypeOf(limiter.renew("a", "lease", { count: 1, signal })).toEqualTypeOf<Promise<HeldAnswer>>();
expectTypeOf(limiter.release("a", "lease", { signal })).toEqualTypeOf<Promise<HeldAnswer>>();
expectTypeOf(limiter.budget("a", "lease", { wants: 1 })).toEqualTypeOf<Promise<HeldAnswer>>();
// @ts-expect-error: `left` needs `grantedAtUs`
limiter.budget("a", "lease", { wants: 1, left: 2 });
expectTypeOf(limiter.report("a", { admitted: 1, suppressed: 0 })).toEqualTypeOf<Promise<Answer>>();
expectTypeOf(limiter.reserve("a", { cost: 2, timeToLive: "1m", ...once })).toEqualTypeOf<Promise<Reservation>>();
expectTypeOf(limiter.commit("a", "id", 1, { signal })).toEqualTypeOf<Promise<Committed>>();
expectTypeOf(limiter.refund("a", 1, once)).toEqualTypeOf<Promise<Answer>>();
expectTypeOf(limiter.reset("a").then(({ remaining }) => remaining)).toEqualTypeOf<Promise<number>>();
expectTypeOf(limiter.block("a", "1m", { signal }).then(({ allowed }) => allowed)).toEqualTypeOf<Promise<boolean>>();

/** Code that takes either limiter. */
export async function served(limiter: AsyncLimiter): Promise<number | undefined> {
  const answer = await limiter.check("a", { cost: 2 });
  if (answer.degraded === undefined) expectTypeOf(answer.retryAfterUs).toEqualTypeOf<number>();
  await using grant = await limiter.acquire("a", { lease: "b" });
  expectTypeOf((await limiter.run("a", () => "done")).value).toEqualTypeOf<string | undefined>();
  expectTypeOf(grant.lease).toEqualTypeOf<string>();
  expectTypeOf((await grant.refund(1))?.remaining).toEqualTypeOf<number | undefined>();
  expectTypeOf(grant.release()).toEqualTypeOf<Promise<boolean>>();
  try {
    await limiter.block("a", 0);
  } catch (error) {
    if (error instanceof LimiterError && error.code === "UNAUTHORIZED") return 401;
  }
  await limiter.close();
  return limiter.waiting;
}
served(limiter);
served(new RedisLimiter("", { callBuffer: async () => 0 }));
export const grants: [Grant?, HeldGrant?] = [];
