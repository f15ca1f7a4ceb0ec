// Mistakes that the types of the drop-in classes refuse. Compiled, never run.
import { MemoryStore } from "tidegate/express-rate-limit";
import { RateLimiterMemory } from "tidegate/rate-limiter-flexible";
import { InMemoryRateLimiter } from "tidegate/rolling-rate-limiter";
import { Ratelimit } from "tidegate/upstash";
// @ts-expect-error a prefix is a text
new MemoryStore({ prefix: 5 });
// @ts-expect-error points are needed
new RateLimiterMemory({ duration: 1 });
// @ts-expect-error an interval is needed
new InMemoryRateLimiter({ maxInInterval: 1 });
// @ts-expect-error there is no such unit
Ratelimit.fixedWindow(5, "10 fortnights");
// @ts-expect-error a limit is a number or false
new Ratelimit({ limiter: Ratelimit.fixedWindow(5, "10 s"), dynamicLimits: true }).setDynamicLimit({ limit: "5" });
// @ts-expect-error an algorithm is needed
new Ratelimit({ limiter: () => 5 });
