// A small app that is written for the types of the other libraries. It is compiled with their imports, and again with ours.
import express from "express";
import { rateLimit } from "express-rate-limit";
import { MemoryStore } from "express-rate-limit";
import { InMemoryRateLimiter, RateLimiter } from "rolling-rate-limiter";
import type { Id, RateLimitInfo, RateLimiterOptions } from "rolling-rate-limiter";
import {
  BurstyRateLimiter, RateLimiterAbstract, RateLimiterCompatibleAbstract, RateLimiterMemory, RateLimiterQueue, RateLimiterQueueError,
  RateLimiterRes, RateLimiterUnion, RLWrapperBlackAndWhite,
} from "rate-limiter-flexible";
import type { IRateLimiterOptions, IRateLimiterRes, RateLimiterLike } from "rate-limiter-flexible";
import { Ratelimit } from "@upstash/ratelimit";
import type { Duration, RatelimitConfig } from "@upstash/ratelimit";
import { Redis } from "@upstash/redis";

// express-rate-limit
const store = new MemoryStore();
const app = express();
app.use(rateLimit({ windowMs: 15 * 60 * 1000, limit: 100, standardHeaders: "draft-8", legacyHeaders: false, store, passOnStoreError: true }));
export async function hitsOf(client: string): Promise<number> {
  const found = await store.get(client);
  if (found?.resetTime !== undefined && found.resetTime.getTime() < Date.now()) await store.resetKey(client);
  return found?.totalHits ?? 0;
}
process.on("exit", () => store.shutdown());

// rolling-rate-limiter
const rolling: RateLimiterOptions = { interval: 1000, maxInInterval: 10, minDifference: 100 };
const mailer: RateLimiter = new InMemoryRateLimiter(rolling);
export async function mail(id: Id): Promise<string> {
  if (await mailer.wouldLimit(id)) return "later";
  const info: RateLimitInfo = await mailer.limitWithInfo(id);
  const wait: number = info.millisecondsUntilAllowed + (await mailer.wouldLimitWithInfo(42)).actionsRemaining;
  if (info.blockedDueToCount || info.blockedDueToMinDifference) await mailer.clear(id);
  return info.blocked ? `in ${wait} ms` : "sent";
}

// rate-limiter-flexible
const options: IRateLimiterOptions = { points: 6, duration: 1, blockDuration: 10, keyPrefix: "login", execEvenly: false, execEvenlyMinDelayMs: 20 };
const slow = new RateLimiterMemory({ points: 100, duration: 0 });
const memory = new RateLimiterMemory({ ...options, insuranceLimiter: slow });
const wrapped = new RLWrapperBlackAndWhite({
  limiter: memory, blackList: ["13.35.67.49"], whiteList: ["127.0.0.1"], isBlackListed: (key) => /^ab/.test(key), runActionAnyway: false,
});
const all: RateLimiterLike[] = [memory, wrapped];
const union = new RateLimiterUnion(...all);
const bursty = new BurstyRateLimiter(memory, slow);
const queue = new RateLimiterQueue(bursty, { maxQueueSize: 100 });
export async function login(user: string | number): Promise<Record<string, string | number>> {
  try {
    const said: RateLimiterRes = await memory.consume(user, 2, { customDuration: 5 });
    await bursty.consume(user);
    const { login: found } = await union.consume(user, 1);
    const left: number = await queue.removeTokens(1, "mail", Math.floor(Date.now() / 1000) + 60);
    return { "Retry-After": said.msBeforeNext / 1000, "X-RateLimit-Limit": memory.points, "X-RateLimit-Remaining": found.remainingPoints + left };
  } catch (refused) {
    if (refused instanceof RateLimiterQueueError) return { error: refused.message };
    if (refused instanceof RateLimiterRes) return { "Retry-After": Math.round(refused.msBeforeNext / 1000) || 1 };
    throw refused;
  }
}
export async function manage(limiter: RateLimiterAbstract): Promise<IRateLimiterRes | null> {
  await limiter.penalty("user", 2);
  await limiter.reward("user");
  await limiter.block("user", 60);
  await limiter.set("user", 5, 60);
  const isGone: boolean = await limiter.delete("user");
  limiter.points = isGone ? 5 : limiter.msDuration;
  return (await limiter.get(limiter.getKey(5))) ?? (await memory.get("user"));
}
class Custom extends RateLimiterCompatibleAbstract {
  consume(key: string | number): Promise<RateLimiterRes> {
    return Promise.resolve(new RateLimiterRes(1, 2, 3, key === "a"));
  }
}
export const custom = new RateLimiterUnion(new Custom());

// @upstash/ratelimit
const redis = new Redis({ url: "https://example.com", token: "token" });
const window: Duration = "10 s";
const config: RatelimitConfig = { redis, limiter: Ratelimit.slidingWindow(10, window), prefix: "@upstash/ratelimit", analytics: true, timeout: 1000 };
const ratelimit = new Ratelimit({ ...config, ephemeralCache: new Map<string, number>() });
const others = [
  new Ratelimit({ redis, limiter: Ratelimit.fixedWindow(10, "1m"), ephemeralCache: false }),
  new Ratelimit({ redis, limiter: Ratelimit.tokenBucket(5, "10s", 10) }),
];
export async function handle(ip: string): Promise<Response> {
  const { success, limit, remaining, reset, pending, reason } = await ratelimit.limit(ip, { rate: 2, ip, userAgent: "curl", country: "CH" });
  await pending;
  if (reason === "timeout" || reason === "cacheBlock" || reason === "denyList") console.log(reason);
  const ready = await others[0].blockUntilReady(ip, 60_000);
  const left = await others[1].getRemaining(ip);
  if (left.remaining === left.limit) await ratelimit.resetUsedTokens(ip);
  return new Response(success && ready.success ? "hello" : `${limit} ${remaining} ${reset} ${left.reset}`);
}
