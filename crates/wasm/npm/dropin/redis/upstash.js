// The single-region limiter of @upstash/ratelimit in Redis. Each decision is one operation of the core.
import { ArgumentError } from "tidegate";
import { LONGEST_TIMER_MS, defineAbsent, failure, fieldsOf, invalid, requireNumber } from "../input.js";
import { DEFAULT_PREFIX, FixedWindow, Limiting, MOST_DURATION_MS, MOST_DYNAMIC, algorithmsOf, endOfWindow, mostUnitsIn, text } from "../ratelimit.js";
import { RedisCounters, known, limiterOf, requireClient } from "./counters.js";

/** @import { Limit } from "tidegate/redis" */
/** @import * as declared from "./upstash.js" */
/** @import { Left, Limited } from "../ratelimit.js" */
/** @typedef {{ client: any, deadline: string | undefined, isDynamic: boolean }} Context */

const { counting, ...algorithms } = algorithmsOf({
  /** @returns {(context: Context) => FixedWindow} */
  fixedWindow: (tokens, windowMs) => ({ client, deadline }) =>
    new FixedWindow(tokens, windowMs, new RedisCounters("upstash-fixed", client, windowMs, { start: "aligned", deadline })),
  slidingWindow: (tokens, windowMs) => (context) => new SlidingWindow(tokens, windowMs, context),
  tokenBucket: (refillRate, intervalMs, maxTokens) => (context) => new TokenBucket(refillRate, intervalMs, maxTokens, context),
});

const DEFAULT_TIMEOUT_MS = 5_000;
const MOST_DEADLINE_MS = 3_600_000;

export class Ratelimit extends Limiting {
  /** @param {declared.RatelimitConfig} config */
  constructor(config) {
    const { redis, prefix = DEFAULT_PREFIX, timeout = DEFAULT_TIMEOUT_MS, dynamicLimits = false } = fieldsOf(config, ["redis", "prefix", "timeout", "dynamicLimits"]);
    requireClient("redis", redis);
    requireNumber("timeout", timeout);
    // twice the timeout, so that the timeout ends first
    const deadline = timeout > 0 ? `${Math.min(MOST_DEADLINE_MS, Math.ceil(2 * timeout))}ms` : undefined;
    const context = { client: redis, deadline, isDynamic: Boolean(dynamicLimits) };
    super(config, () => counting(config, context), dynamicLimits ? new DynamicLimit(prefix, context) : undefined);
    if (timeout > 0) this.limit = within(timeout, this.limit);
  }

  /** Windows that begin at the same time for all identifiers. A refused request counts. */
  static fixedWindow = algorithms.fixedWindow;
  /** A window that moves: the requests of the last aligned window count by the part that it still covers. */
  static slidingWindow = algorithms.slidingWindow;
  /** A bucket that gets `refillRate` tokens at each multiple of the interval since the Unix epoch. */
  static tokenBucket = algorithms.tokenBucket;
}

defineAbsent(Ratelimit, { cachedFixedWindow: "because two processes would both count on their caches: use `fixedWindow`" });

/** Several regions that count apart grant more than the limit. */
export class MultiRegionRatelimit {
  constructor() {
    throw failure(ArgumentError, "INVALID_REQUEST", `\`MultiRegionRatelimit\` is not here, ${ONE_REGION}`);
  }
}

const ONE_REGION = "because regions that count apart grant more than the limit: use `Ratelimit` on the Redis of one region";
defineAbsent(MultiRegionRatelimit, { fixedWindow: ONE_REGION, slidingWindow: ONE_REGION, tokenBucket: ONE_REGION });

/**
 * Lets a request pass if it is not decided within a time. From then on until its next answer, Redis counts as hanging, and requests that
 * fail pass, too.
 *
 * @type {(ms: number, limit: declared.Ratelimit["limit"]) => declared.Ratelimit["limit"]}
 */
function within(ms, limit) {
  let hangs = false;
  /** @returns {declared.RatelimitResponse} */
  const pass = () => ({ success: true, limit: 0, remaining: 0, reset: 0, pending: Promise.resolve(), reason: "timeout" });
  return async (identifier, request) => {
    const asked = limit(identifier, request).then((said) => {
      if (!Object.hasOwn(said, "reason")) hangs = false;
      return said;
    }, (error) => {
      if (hangs && error.code === "UNAVAILABLE") return pass();
      throw error;
    });
    let timer;
    const late = new Promise((resolve) => {
      timer = setTimeout(() => {
        hangs = true;
        resolve(pass());
      }, Math.min(ms, LONGEST_TIMER_MS));
    });
    try {
      return await Promise.race([asked, late]);
    } finally {
      clearTimeout(timer);
    }
  };
}

/** The limit that all processes of a prefix share, as a counter that does not end. */
class DynamicLimit {
  #counters;
  #key;

  /** @param {string} prefix @param {Context} context */
  constructor(prefix, { client, deadline }) {
    this.#counters = new RedisCounters("upstash-dynamic", client, Infinity, { deadline });
    this.#key = text(`${prefix}:dynamic:global`);
  }

  /** @type {() => Promise<number | null>} */
  async get() {
    const found = await this.#counters.get(this.#key);
    return found?.value ?? null;
  }

  /** @type {(limit: number | null) => Promise<void>} */
  async set(limit) {
    if (limit === null) await this.#counters.delete(this.#key);
    else await this.#counters.put(this.#key, limit, Infinity);
  }
}

/**
 * A limit in Redis, of which a token is one or many units. Under `dynamicLimits` objects of one prefix may have other tokens, and all
 * count on one limit that is large enough for each of them: what exceeds an object's own tokens is given back.
 */
class Shared {
  #limiter;
  #most;
  #unitsPerToken;
  tokens;

  /**
   * @param {string} name @param {number} tokens @param {number} mostDynamic @param {Context} context
   * @param {(tokens: number) => Limit} limitOf @param {number} [unitsPerToken]
   */
  constructor(name, tokens, mostDynamic, { client, deadline, isDynamic }, limitOf, unitsPerToken = 1) {
    this.#most = isDynamic ? Math.max(tokens, mostDynamic) : tokens;
    this.#limiter = limiterOf(name, client, limitOf(this.#most), deadline, isDynamic ? { on_change: "keep" } : {});
    this.#unitsPerToken = unitsPerToken;
    this.tokens = tokens;
  }

  /** @type {(tokens: number) => void} */
  resize(tokens) {
    if (tokens > this.#most) throw invalid("limit", `at most ${this.#most} in such a window`, tokens);
    this.tokens = tokens;
  }

  /** @type {(key: string, now: number) => Promise<void>} */
  async reset(key, now) {
    known(await this.#limiter.reset(text(key), { now: now * 1000 }));
  }

  /** @type {(key: string, rate: number, now: number) => Promise<{ success: boolean, remaining: number }>} */
  async take(key, rate, now) {
    if (rate > this.tokens) return REFUSED;
    const [units, options] = [Math.abs(rate) * this.#unitsPerToken, { now: now * 1000 }];
    const asked = rate < 0 ? this.#limiter.refund(text(key), units, options) : this.#limiter.check(text(key), { cost: units, ...options });
    const found = known(await asked);
    const remaining = this.#left(found);
    if (found.allowed && (remaining >= 0 || rate <= 0)) return { success: remaining >= 0, remaining };
    if (found.allowed) known(await this.#limiter.refund(text(key), units, options));
    return REFUSED;
  }

  /** @type {(key: string, now: number) => Promise<number>} */
  async left(key, now) {
    return this.#left(known(await this.#limiter.peek(text(key), { now: now * 1000 })));
  }

  /** @type {(found: { limit: number, remaining: number }) => number} */
  #left({ limit, remaining }) {
    return this.tokens - Math.floor((limit - remaining) / this.#unitsPerToken);
  }
}

const REFUSED = { success: false, remaining: 0 };

/** The longest sliding window in which the core can count the most tokens that a limit may be set to, and one more. */
const LONGEST_DYNAMIC_MS = Math.floor(2 ** 63 / (1000 * (MOST_DYNAMIC + 1)));

/**
 * A request is granted while less than all tokens are used. The core compares units, of which a token has many, so the limit is a unit
 * less than one token more.
 */
class SlidingWindow extends Shared {
  #windowMs;

  /** @param {number} tokens @param {number} windowMs @param {Context} context */
  constructor(tokens, windowMs, context) {
    const mostUnits = mostUnitsIn(windowMs);
    if (context.isDynamic && mostUnits <= MOST_DYNAMIC) throw invalid("window", `at most ${LONGEST_DYNAMIC_MS} ms with \`dynamicLimits\``, windowMs);
    const mostTokens = context.isDynamic ? Math.max(tokens, MOST_DYNAMIC) : tokens;
    const unitsPerToken = Math.min(windowMs, Math.floor(mostUnits / (mostTokens + 1)));
    if (tokens < 1 || unitsPerToken < 1) throw invalid("tokens", `a whole number from 1 to ${mostUnits - 1} in such a window`, tokens);
    super("upstash-sliding", tokens, MOST_DYNAMIC, context, (most) => (
      { algorithm: "sliding_window", limit: (most + 1) * unitsPerToken - 1, period: `${windowMs}ms`, segments: 1 }), unitsPerToken);
    this.#windowMs = windowMs;
  }

  /** @type {(key: string, rate: number, now: number) => Promise<Limited>} */
  async limit(key, rate, now) {
    return { ...await this.take(key, rate, now), reset: endOfWindow(now, this.#windowMs) };
  }

  /** @type {(key: string, now: number) => Promise<Left>} */
  async look(key, now) {
    return { remaining: await this.left(key, now), reset: endOfWindow(now, this.#windowMs) };
  }
}

/** The core's bucket fills all the time. Here it is asked only at the times at which tokens come in. */
class TokenBucket extends Shared {
  #intervalMs;

  /** @param {number} refillRate @param {number} intervalMs @param {number} maxTokens @param {Context} context */
  constructor(refillRate, intervalMs, maxTokens, context) {
    const mostDynamic = Math.min(MOST_DYNAMIC, Math.floor((MOST_DURATION_MS / intervalMs) * refillRate));
    super("upstash-bucket", maxTokens, mostDynamic, context, (most) => ({ algorithm: "token_bucket", capacity: most, rate: `${refillRate}/${intervalMs}ms` }));
    this.#intervalMs = intervalMs;
  }

  /** @type {(key: string, rate: number, now: number) => Promise<Limited>} */
  async limit(key, rate, now) {
    const reset = endOfWindow(now, this.#intervalMs);
    return { ...await this.take(key, rate, reset - this.#intervalMs), reset };
  }

  /** @type {(key: string, now: number) => Promise<Left>} */
  async look(key, now) {
    const reset = endOfWindow(now, this.#intervalMs);
    return { remaining: await this.left(key, reset - this.#intervalMs), reset };
  }
}
