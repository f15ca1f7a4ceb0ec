// The single-region limiter of @upstash/ratelimit, with its state in the memory of this process.
import { Limiter } from "tidegate";
import { Counters } from "./counters.js";
import { Clock, defineAbsent, fieldsOf, invalid, invalidKey, requireNumber, requireWhole, shortText } from "./input.js";

/** @import * as declared from "./upstash.js" */
/** @typedef {{ remaining: number, reset: number }} Left */
/** @typedef {Left & { success: boolean }} Limited */
/** @typedef {{ tokens: number, limit: (key: string, rate: number, now: number) => Limited, look: (key: string, now: number) => Left, reset: (key: string, now: number) => void }} Counting */
/** @typedef {(maxBytes?: number) => Counting} Make */

const DEFAULT_PREFIX = "@upstash/ratelimit";
const CONFIG = ["limiter", "prefix", "ephemeralCache", "enableProtection", "denyList", "dynamicLimits", "maxBytes"];
const REQUEST = ["rate", "ip", "userAgent", "country"];
const MOST_RATE = 2 ** 40;
const MOST_CACHED = 10_000;

export class Ratelimit {
  /** @type {Counting} */
  #algorithm;
  #prefix;
  /** The time until which an identifier that was refused is refused without counting. */
  #cache;
  #denied;
  #clock = new Clock();

  /** @param {declared.RatelimitConfig} config */
  constructor(config) {
    const options = fieldsOf(config, CONFIG);
    const { limiter, prefix = DEFAULT_PREFIX, ephemeralCache, enableProtection = false, denyList, dynamicLimits = false } = options;
    if (!ALGORITHMS.has(limiter)) throw invalid("limiter", "an algorithm such as `Ratelimit.slidingWindow(10, \"10 s\")`", limiter);
    if (typeof prefix !== "string") throw invalid("prefix", "a string", prefix);
    if (dynamicLimits) throw invalid("dynamicLimits", "`false`, because no other process could set the limit", dynamicLimits);
    if (denyList !== undefined && !enableProtection) throw invalid("enableProtection", "`true` beside a `denyList`", enableProtection);
    this.#algorithm = limiter(options.maxBytes);
    this.#prefix = prefix;
    if (ephemeralCache === undefined) this.#cache = new Cache(new Map(), true);
    else if (ephemeralCache) this.#cache = new Cache(ephemeralCache, false);
    this.#denied = new Set(enableProtection ? requireList(denyList) : []);
  }

  /**
   * Windows that begin at the same time for all identifiers. A refused request counts.
   *
   * @type {(tokens: number, window: declared.Duration) => declared.Algorithm}
   */
  static fixedWindow(tokens, window) {
    requireNumber("tokens", tokens);
    const windowMs = milliseconds("window", window);
    return algorithm((maxBytes) => new FixedWindow(tokens, windowMs, maxBytes));
  }

  /**
   * A window that moves: the requests of the last aligned window count by the part that it still covers.
   *
   * @type {(tokens: number, window: declared.Duration) => declared.Algorithm}
   */
  static slidingWindow(tokens, window) {
    requireWhole("tokens", tokens, 0);
    const windowMs = milliseconds("window", window);
    return algorithm((maxBytes) => withDuration("window", window, () => new SlidingWindow(tokens, windowMs, maxBytes)));
  }

  /**
   * A bucket that gets `refillRate` tokens after each interval from the first request on.
   *
   * @type {(refillRate: number, interval: declared.Duration, maxTokens: number) => declared.Algorithm}
   */
  static tokenBucket(refillRate, interval, maxTokens) {
    requireWhole("refillRate", refillRate, 1);
    requireWhole("maxTokens", maxTokens, 1);
    const intervalMs = milliseconds("interval", interval);
    return algorithm((maxBytes) => withDuration("interval", interval, () => new TokenBucket(refillRate, intervalMs, maxTokens, maxBytes)));
  }

  /** @type {declared.Ratelimit["limit"]} */
  limit = async (identifier, request) => {
    const { rate: given, ...about } = fieldsOf(request, REQUEST);
    const rate = given ?? 1;
    const deniedValue = [identifier, ...Object.values(about)].find((value) => value && this.#denied.has(value));
    if (deniedValue !== undefined) {
      const refusal = { success: false, limit: 0, remaining: 0, reset: 0 };
      return { ...refusal, pending: Promise.resolve(), reason: "denyList", deniedValue };
    }
    requireWhole("rate", rate, -MOST_RATE, MOST_RATE);
    const key = this.#key(identifier);
    const now = this.#now();
    const blockedUntil = rate > 0 ? this.#cache?.blockedUntil(key, now) : undefined;
    if (blockedUntil !== undefined) {
      const refusal = { success: false, limit: this.#algorithm.tokens, remaining: 0, reset: this.#realTime(blockedUntil) };
      return { ...refusal, pending: Promise.resolve(), reason: "cacheBlock" };
    }
    const { success, remaining, reset } = this.#algorithm.limit(key, rate, now);
    if (!success) this.#cache?.block(key, reset);
    else if (rate < 0) this.#cache?.delete(key);
    return { success, limit: this.#algorithm.tokens, remaining: Math.max(0, remaining), reset: this.#realTime(reset), pending: Promise.resolve() };
  };

  /** @type {declared.Ratelimit["blockUntilReady"]} */
  blockUntilReady = async (identifier, timeout) => {
    if (typeof timeout !== "number" || !(timeout > 0)) throw invalid("timeout", "a number of milliseconds above 0", timeout);
    const deadline = this.#now() + timeout;
    for (;;) {
      const said = await this.limit(identifier);
      if (said.success) return said;
      if (said.reason === "denyList") throw new Error(`\`identifier\`: expected one that is not denied, found ${said.deniedValue}`);
      const now = this.#now();
      const wait = Math.min(said.reset + this.#aheadMs(), deadline) - now;
      await new Promise((done) => setTimeout(done, wait > 0 ? Math.min(wait, LONGEST_TIMER_MS) : 100));
      if (this.#now() > deadline) return said;
    }
  };

  /** @type {declared.Ratelimit["getRemaining"]} */
  getRemaining = async (identifier) => {
    const { remaining, reset } = this.#algorithm.look(this.#key(identifier), this.#now());
    return { remaining: Math.max(0, remaining), reset: this.#realTime(reset), limit: this.#algorithm.tokens };
  };

  /** @type {declared.Ratelimit["resetUsedTokens"]} */
  resetUsedTokens = async (identifier) => {
    const key = this.#key(identifier);
    this.#cache?.delete(key);
    this.#algorithm.reset(key, this.#now());
  };

  /** @type {(identifier: unknown) => string} */
  #key(identifier) {
    let joined;
    try {
      joined = [this.#prefix, identifier].join(":");
    } catch {
      throw invalidKey("identifier", typeof identifier === "symbol" ? "a symbol" : "an object without a text");
    }
    return shortText(joined);
  }

  /** Milliseconds of the limiter's clock. */
  #now() {
    return Math.floor(this.#clock.now() / 1000);
  }

  #aheadMs() {
    return Math.ceil(this.#clock.aheadUs / 1000);
  }

  /**
   * A time of the limiter's clock in the real one.
   *
   * @type {(time: number) => number}
   */
  #realTime(time) {
    return time - this.#aheadMs();
  }
}

defineAbsent(Ratelimit, { cachedFixedWindow: "because memory needs no cache: use `fixedWindow`" });
defineAbsent(Ratelimit.prototype, {
  setDynamicLimit: "because no other process could read the limit: use `update` of a `Limiter`",
  getDynamicLimit: "because no other process could set the limit: use `update` of a `Limiter`",
}, { isAsync: true });

/** What the functions of the class have made. */
const ALGORITHMS = new WeakSet();

/** @type {(make: Make) => any} */
function algorithm(make) {
  ALGORITHMS.add(make);
  return make;
}

/**
 * Makes a limiter. The core names its own fields in an error about a span, so the error is told about the caller's field.
 *
 * @template T
 * @param {string} field
 * @param {string} duration
 * @param {() => T} make
 * @returns {T}
 */
function withDuration(field, duration, make) {
  try {
    return make();
  } catch (/** @type {any} */ error) {
    if (error?.code !== "INVALID_POLICY") throw error;
    throw invalid(field, "a duration that the core can count with these tokens", duration);
  }
}

const LONGEST_TIMER_MS = 2 ** 31 - 1;

class FixedWindow {
  #counters;
  #windowMs;

  /** @param {number} tokens @param {number} windowMs @param {number} [maxBytes] */
  constructor(tokens, windowMs, maxBytes) {
    this.tokens = tokens;
    this.#windowMs = windowMs;
    this.#counters = new Counters(maxBytes);
  }

  /** @type {(key: string, rate: number, now: number) => Limited} */
  limit(key, rate, now) {
    const reset = endOfWindow(now, this.#windowMs);
    const remaining = this.tokens - this.#counters.add(text(key), rate, reset - now, now * 1000).value;
    return { success: remaining >= 0, remaining, reset };
  }

  /** @type {(key: string, now: number) => Left} */
  look(key, now) {
    const used = this.#counters.get(text(key), now * 1000)?.value ?? 0;
    return { remaining: this.tokens - used, reset: endOfWindow(now, this.#windowMs) };
  }

  /** @type {(key: string, now: number) => void} */
  reset(key, now) {
    this.#counters.delete(text(key), now * 1000);
  }
}

/**
 * The core refuses a request that does not fit, and rounds what is left down. Here a request is refused once nothing is left, and
 * the weighted requests are rounded down. So a token is many units of the core, and the limit is far away.
 */
class SlidingWindow {
  #limiter;
  #windowMs;
  #unitsPerToken;

  /** @param {number} tokens @param {number} windowMs @param {number} [maxBytes] */
  constructor(tokens, windowMs, maxBytes) {
    this.tokens = tokens;
    this.#windowMs = windowMs;
    const mostUnits = Math.min(Number.MAX_SAFE_INTEGER, Math.floor(2 ** 63 / (windowMs * 1000))); // the core's bound
    const mostTokens = 4 * Math.max(1, tokens);
    this.#unitsPerToken = Math.min(windowMs, Math.floor(mostUnits / mostTokens));
    if (this.#unitsPerToken < 1) throw invalid("tokens", `at most ${Math.floor(mostUnits / 4)} in such a window`, tokens);
    /** @type {import("tidegate").Limit} */
    const limit = { algorithm: "sliding_window", limit: this.#unitsPerToken * mostTokens, period: `${windowMs}ms`, segments: 1 };
    this.#limiter = new Limiter({ limits: [limit] }, { maxBytes });
  }

  /** @type {(key: string, rate: number, now: number) => Limited} */
  limit(key, rate, now) {
    const { remaining, reset } = this.look(key, now);
    if (rate > 0 && remaining <= 0) return { success: false, remaining, reset };
    const options = { now: now * 1000 };
    if (rate < 0) this.#limiter.refund(text(key), -rate * this.#unitsPerToken, options);
    else this.#take(text(key), rate * this.#unitsPerToken, options);
    const after = this.look(key, now).remaining;
    return { success: after >= 0, remaining: after, reset };
  }

  /** @type {(key: string, now: number) => Left} */
  look(key, now) {
    const { limit, remaining } = this.#limiter.check(text(key), { cost: 0, now: now * 1000 });
    const used = Math.floor((limit - remaining) / this.#unitsPerToken);
    return { remaining: this.tokens - used, reset: endOfWindow(now, this.#windowMs) };
  }

  /** @type {(key: string, now: number) => void} */
  reset(key, now) {
    this.#limiter.reset(text(key), { now: now * 1000 });
  }

  /** @type {(key: string, units: number, options: { now: number }) => void} */
  #take(key, units, { now }) {
    const { remaining } = this.#limiter.check(key, { cost: 0, now });
    this.#limiter.check(key, { cost: Math.min(units, remaining), now });
  }
}

/** The core's bucket fills all the time. Here it is asked only at the times at which tokens come in. */
class TokenBucket {
  #limiter;
  #intervalMs;
  /** The time of the last refill, in milliseconds, of each bucket that is not full. */
  #refills;

  /** @param {number} refillRate @param {number} intervalMs @param {number} maxTokens @param {number} [maxBytes] */
  constructor(refillRate, intervalMs, maxTokens, maxBytes) {
    this.tokens = maxTokens;
    this.#intervalMs = intervalMs;
    /** @type {import("tidegate").Limit} */
    const limit = { algorithm: "token_bucket", capacity: maxTokens, rate: `${refillRate}/${intervalMs}ms` };
    this.#limiter = new Limiter({ limits: [limit] }, { maxBytes });
    this.#refills = new Counters(maxBytes);
  }

  /** @type {(key: string, rate: number, now: number) => Limited} */
  limit(key, rate, now) {
    const last = this.#refills.get(text(key), now * 1000)?.value ?? now;
    const refilledAt = now - ((now - last) % this.#intervalMs);
    const options = { now: refilledAt * 1000 };
    const reset = refilledAt + this.#intervalMs;
    if (rate > this.tokens || (rate > 0 && !this.#limiter.peek(text(key), { cost: rate, ...options }).allowed)) {
      return { success: false, remaining: 0, reset };
    }
    const after = rate < 0 ? this.#limiter.refund(text(key), -rate, options) : this.#limiter.check(text(key), { cost: rate, ...options });
    const spanMs = Math.ceil(after.resetAfterUs / 1000 / this.#intervalMs) * this.#intervalMs;
    if (spanMs > 0) this.#refills.put(text(key), refilledAt, spanMs, now * 1000);
    return { success: true, remaining: after.remaining, reset };
  }

  /** @type {(key: string, now: number) => Left} */
  look(key, now) {
    const refilledAt = this.#refills.get(text(key), now * 1000)?.value ?? now;
    const { remaining } = this.#limiter.check(text(key), { cost: 0, now: refilledAt * 1000 });
    return { remaining, reset: refilledAt + this.#intervalMs };
  }

  /** @type {(key: string, now: number) => void} */
  reset(key, now) {
    this.#limiter.reset(text(key), { now: now * 1000 });
    this.#refills.delete(text(key), now * 1000);
  }
}

/** Blocked identifiers in a map. A map of the caller's grows as the caller lets it; the own one forgets the oldest. */
class Cache {
  #times;
  #isOwn;

  /** @param {Map<string, number>} times @param {boolean} isOwn */
  constructor(times, isOwn) {
    if (!(times instanceof Map)) throw invalid("ephemeralCache", "a Map or `false`", times);
    this.#times = times;
    this.#isOwn = isOwn;
  }

  /** @type {(key: string, now: number) => number | undefined} */
  blockedUntil(key, now) {
    const until = this.#times.get(key);
    if (until === undefined || until >= now) return until;
    this.#times.delete(key);
    return undefined;
  }

  /** @type {(key: string, until: number) => void} */
  block(key, until) {
    if (this.#isOwn && this.#times.size >= MOST_CACHED) this.#times.delete(/** @type {string} */ (this.#times.keys().next().value));
    this.#times.set(key, until);
  }

  /** @type {(key: string) => void} */
  delete(key) {
    this.#times.delete(key);
  }
}

/** @type {(denyList: any) => Iterable<string>} */
function requireList(denyList) {
  if (denyList === undefined) throw invalid("denyList", "the denied values, because those of the dashboard are in Redis", denyList);
  if (typeof denyList !== "object" || typeof denyList?.[Symbol.iterator] !== "function") throw invalid("denyList", "an array of denied values", denyList);
  return denyList;
}

/**
 * A prefix could make the limiter read a key as an address.
 *
 * @type {(key: string) => string}
 */
const text = (key) => `=${key}`;

/** @type {(now: number, windowMs: number) => number} */
const endOfWindow = (now, windowMs) => (Math.floor(now / windowMs) + 1) * windowMs;

const MOST_DURATION_MS = 36_500 * 86_400_000;
/** @type {Record<string, number>} */
const UNITS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };

/** @type {(field: string, duration: string) => number} */
function milliseconds(field, duration) {
  const [, number, unit] = /^(\d+(?:\.\d+)?)\s?(ms|s|m|h|d|w)$/.exec(duration) ?? [];
  const found = unit === undefined ? 0 : Math.round(Number(number) * UNITS[unit]);
  if (found > MOST_DURATION_MS) throw invalid(field, "at most 36500 d", duration);
  if (found >= 1) return found;
  throw invalid(field, "a duration of at least 1 ms, such as \"10 s\"", duration);
}
