// Every documented use of `tidegate/durable-objects`, checked by TypeScript.
import { expectTypeOf } from "expect-type";
import DurableDefault, { DurableLimiter, Keys, type Answer, type Committed, type Decision, type Explanation, type Grant, type HeldAnswer, type HeldGrant, type Objects, type Ran, type Reservation } from "tidegate/durable-objects";
import { rateLimit } from "tidegate/hono";
import { toml } from "tidegate/toml";

declare const env: { KEYS: Objects };
const policy = { limits: [{ algorithm: "fixed_window", limit: 5, period: "1m" }] } as const;
const limits = [...policy.limits];
const limiter = new DurableLimiter({ limits }, env.KEYS, { prefix: "app", deadline: "100ms", policy: "policy" });
new DurableDefault("{}", env.KEYS, {});
// @ts-expect-error: it needs the binding
new DurableLimiter({ limits });
// @ts-expect-error: the whole environment is no binding
new DurableLimiter({ limits }, env);
// @ts-expect-error: no such option
new DurableLimiter({ limits }, env.KEYS, { maxBytes: 1 });
// @ts-expect-error: limits of a call are for a limiter in memory
limiter.check("a", { limits });

rateLimit(limiter, { headers: "draft-7" });
new DurableLimiter(toml("limits = []"), env.KEYS);
// @ts-expect-error: limits of a call are for a limiter in memory
limiter.waitFor("a", { limits });

expectTypeOf(Keys).toBeConstructibleWith({}, {});
expectTypeOf(limiter.check("a", { cost: 1 })).toEqualTypeOf<Promise<Decision>>();
expectTypeOf(limiter.peek("a")).toEqualTypeOf<Promise<Answer>>();
expectTypeOf(limiter.waitFor("a", { cost: 1, jitter: 0 })).toEqualTypeOf<Promise<Grant>>();
expectTypeOf(limiter.explain("a", { cost: 1 })).toEqualTypeOf<Promise<Explanation>>();
expectTypeOf(limiter.decide("a", { class: "default" })).toEqualTypeOf<Promise<Grant>>();
expectTypeOf(limiter.run("a", async () => "done")).toEqualTypeOf<Promise<Ran<string>>>();
expectTypeOf(limiter.acquire("a")).toEqualTypeOf<Promise<HeldGrant>>();
expectTypeOf(limiter.renew("a", "lease", { count: 1 })).toEqualTypeOf<Promise<HeldAnswer>>();
expectTypeOf(limiter.release("a", "lease")).toEqualTypeOf<Promise<HeldAnswer>>();
expectTypeOf(limiter.reserve("a", { cost: 2, timeToLive: "1m" })).toEqualTypeOf<Promise<Reservation>>();
expectTypeOf(limiter.commit("a", "id", 1)).toEqualTypeOf<Promise<Committed>>();
expectTypeOf(limiter.refund("a", 1)).toEqualTypeOf<Promise<Answer>>();
