// A small app on Redis that is written for the types of the other libraries. It is compiled with their imports, and again with ours.
import { rateLimit } from "express-rate-limit";
import { RedisStore } from "rate-limit-redis";
import type { RedisReply } from "rate-limit-redis";
import type { Options as StoreOptions } from "rate-limit-redis";
import { Redis } from "ioredis";
import { createClient } from "redis";
import { IORedisRateLimiter, NodeRedisRateLimiter, RedisRateLimiter } from "rolling-rate-limiter";
import type { RateLimitInfo } from "rolling-rate-limiter";
import { BurstyRateLimiter, RateLimiterMemory, RateLimiterQueue, RateLimiterRedis, RateLimiterRes, RateLimiterUnion, RLWrapperTimeouts } from "rate-limiter-flexible";
import type { IRateLimiterRedisOptions, IRateLimiterStoreOptions } from "rate-limiter-flexible";
import { Ratelimit } from "@upstash/ratelimit";
import type { Algorithm } from "@upstash/ratelimit";
import { Redis as UpstashRedis } from "@upstash/redis";

const client = new Redis();
const other = createClient();

// express-rate-limit
export const prefixOf = (options: StoreOptions): string | undefined => options.prefix;
export const middleware = rateLimit({
  windowMs: 60_000, limit: 100,
  store: new RedisStore({ sendCommand: (command: string, ...words: string[]) => client.call(command, ...words) as Promise<RedisReply>, prefix: "rl:" }),
});

// rate-limiter-flexible
const options: IRateLimiterRedisOptions = {
  storeClient: client, points: 5, duration: 60, keyPrefix: "login", blockDuration: 60, inMemoryBlockOnConsumed: 10, inMemoryBlockDuration: 10,
  rejectIfRedisNotReady: true, insuranceLimiter: new RateLimiterMemory({ points: 1, duration: 60 }),
};
const limiter = new RateLimiterRedis(options);
export const thresholdOf = (options: IRateLimiterStoreOptions): number | undefined => options.inMemoryBlockOnConsumed;
const hourly = new RateLimiterRedis({ storeClient: other, useRedisPackage: true, points: 100, duration: 3600 });
const bounded = new RLWrapperTimeouts({ limiter, timeoutMs: 50 });
const union = new RateLimiterUnion(limiter, hourly);
const queue = new RateLimiterQueue(new BurstyRateLimiter(limiter, hourly));
export async function login(user: string): Promise<number> {
  try {
    const { remainingPoints } = await bounded.consume(user, 1);
    await union.consume(user);
    return remainingPoints + (await queue.removeTokens(1, user));
  } catch (refused) {
    if (refused instanceof RateLimiterRes) return -refused.msBeforeNext;
    limiter.deleteInMemoryBlockedAll();
    throw refused;
  }
}

// rolling-rate-limiter
const theirClient: any = client; // their types are of an older ioredis
const rolling = { namespace: "mail:", interval: 60_000, maxInInterval: 10 };
const mailers = [new RedisRateLimiter({ client, ...rolling }), new IORedisRateLimiter({ client: theirClient, ...rolling }), new NodeRedisRateLimiter({ client: other, ...rolling })];
export async function mail(id: string): Promise<RateLimitInfo[]> {
  return Promise.all(mailers.map((mailer) => mailer.limitWithInfo(id)));
}

// @upstash/ratelimit
const ratelimit = new Ratelimit({
  redis: new UpstashRedis({ url: "https://example.com", token: "token" }), limiter: Ratelimit.slidingWindow(10, "10 s"), dynamicLimits: true, timeout: 1_000,
});
export const algorithms: Algorithm<any>[] = [Ratelimit.fixedWindow(10, "10 s"), Ratelimit.tokenBucket(1, "10 s", 10)];
export async function handle(ip: string): Promise<boolean> {
  await ratelimit.setDynamicLimit({ limit: 20 });
  const { dynamicLimit }: { dynamicLimit: number | null } = await ratelimit.getDynamicLimit();
  return dynamicLimit !== null && (await ratelimit.limit(ip)).success;
}
