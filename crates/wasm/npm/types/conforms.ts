// What each script exports is what its declaration says. TypeScript itself takes the declaration beside a script and does not
// compare the two, so this file does; `#written/` finds the script. No part of the package.
import type * as declared from "../index.js";
import type * as express from "../dropin/express-rate-limit.js";
import type * as expressRedis from "../dropin/redis/express-rate-limit.js";
import type * as flexibleRedis from "../dropin/redis/rate-limiter-flexible.js";
import type * as rollingRedis from "../dropin/redis/rolling-rate-limiter.js";
import type * as upstashRedis from "../dropin/redis/upstash.js";
import type * as flexible from "../dropin/rate-limiter-flexible.js";
import type * as rolling from "../dropin/rolling-rate-limiter.js";
import type * as upstash from "../dropin/upstash.js";
import type * as objects from "../durable-objects.js";
import type * as redis from "../redis.js";
import type * as remote from "../remote.js";
import type * as slim from "../slim.js";
import type * as tomlEntry from "../toml.js";

import * as writtenErrors from "#written/errors";
import * as writtenLimiter from "#written/limiter";
import * as writtenReporter from "#written/reporter";
import * as writtenObjects from "#written/objects/limiter";
import * as writtenRedis from "#written/redis/limiter";
import * as writtenRemote from "#written/remote/limiter";
import * as writtenSlim from "#written/entries/slim";
import * as writtenToml from "#written/toml";
import * as writtenExpressLimit from "#written/dropin/express-rate-limit";
import * as writtenFlexible from "#written/dropin/rate-limiter-flexible";
import * as writtenRolling from "#written/dropin/rolling-rate-limiter";
import * as writtenUpstash from "#written/dropin/upstash";
import * as writtenExpressRedis from "#written/dropin/redis/express-rate-limit";
import * as writtenFlexibleRedis from "#written/dropin/redis/rate-limiter-flexible";
import * as writtenRollingRedis from "#written/dropin/redis/rolling-rate-limiter";
import * as writtenUpstashRedis from "#written/dropin/redis/upstash";
import * as writtenExpress from "#written/middleware/express";
import * as writtenFastify from "#written/middleware/fastify";
import * as writtenFetch from "#written/middleware/fetch";
import * as writtenHono from "#written/middleware/hono";
import * as writtenKoa from "#written/middleware/koa";
import * as writtenNext from "#written/middleware/next";

/** `Symbol.dispose ?? Symbol.for("Symbol.dispose")` is not known to TypeScript as the name of a method. */
type Disposes = typeof Symbol.dispose | typeof Symbol.asyncDispose;
/** A class: how it is made, and what its objects have. */
type Made<C extends abstract new (...args: any) => object> =
  new (...args: ConstructorParameters<C>) => Omit<InstanceType<C>, Disposes>;

export const Limiter: Made<typeof declared.Limiter> = writtenLimiter.Limiter;
export const RedisLimiter: Made<typeof redis.RedisLimiter> = writtenRedis.RedisLimiter;
export const DurableLimiter: Made<typeof objects.DurableLimiter> = writtenObjects.DurableLimiter;
export const RemoteLimiter: Made<typeof remote.RemoteLimiter> = writtenRemote.RemoteLimiter;
export const Reporter: Made<typeof declared.Reporter> = writtenReporter.Reporter;
// only the package makes errors, so their declared constructors take nothing
export const policyError = (error: writtenErrors.PolicyError): Omit<declared.PolicyError, "code"> => error;
export const fullError = (error: writtenErrors.FullError): Omit<declared.FullError, "code"> => error;
export const argumentError = (error: writtenErrors.ArgumentError): Pick<declared.ArgumentError, keyof declared.ArgumentError> => error;
export const init: typeof slim.init = writtenSlim.init;
export const toml: typeof tomlEntry.toml = writtenToml.toml;

export const MemoryStore: typeof express.MemoryStore = writtenExpressLimit.MemoryStore;
// the members of the compatible class are defined in a loop, so TypeScript does not know them
export const RateLimiterAbstract: new (...args: ConstructorParameters<typeof flexible.RateLimiterAbstract>) =>
  Omit<flexible.RateLimiterAbstract, "consume" | "penalty" | "reward" | "get" | "set" | "block" | "delete"> = writtenFlexible.RateLimiterAbstract;
export const flexibleClasses: Omit<typeof flexible, "RateLimiterAbstract" | "RateLimiterCompatibleAbstract"> = writtenFlexible;
export const rollingClasses: Pick<typeof rolling, "RateLimiter" | "InMemoryRateLimiter"> = writtenRolling;
export const Ratelimit: Pick<typeof upstash.Ratelimit, keyof typeof upstash.Ratelimit> = writtenUpstash.Ratelimit;

export const RedisStore: typeof expressRedis.RedisStore = writtenExpressRedis.RedisStore;
export const RateLimiterRedis: typeof flexibleRedis.RateLimiterRedis = writtenFlexibleRedis.RateLimiterRedis;
export const rollingRedisClasses: Pick<typeof rollingRedis, "RedisRateLimiter" | "IORedisRateLimiter" | "NodeRedisRateLimiter"> = writtenRollingRedis;
export const RatelimitRedis: Pick<typeof upstashRedis.Ratelimit, keyof typeof upstashRedis.Ratelimit> = writtenUpstashRedis.Ratelimit;

export const expressLimit: typeof import("../middleware/express.js") = writtenExpress;
export const fastifyLimit: typeof import("../middleware/fastify.js") = writtenFastify;
export const fetchLimit: typeof import("../middleware/fetch.js") = writtenFetch;
export const honoLimit: typeof import("../middleware/hono.js") = writtenHono;
export const koaLimit: typeof import("../middleware/koa.js") = writtenKoa;
export const nextLimit: typeof import("../middleware/next.js") = writtenNext;
