// The single-region limiter of @upstash/ratelimit, wherever its algorithms keep their states.
import { ArgumentError } from "tidegate";
import { Clock, failure, fieldsOf, invalid, invalidKey, LONGEST_TIMER_MS, requireNoLonger, requireNumber, requireWhole, shortText } from "./input.js";

/** @import * as declared from "./upstash.js" */
/** @import { KeyedCounters, Soon } from "./counters.js" */
/** @typedef {{ remaining: number, reset: number }} Left */
/** @typedef {Left & { success: boolean }} Limited */
/**
 * An algorithm and its states. Under `resize` it goes on with other tokens.
 *
 * @typedef {object} Counting
 * @property {number} tokens
 * @property {(tokens: number) => void} resize
 * @property {(key: string, rate: number, now: number) => Soon<Limited>} limit
 * @property {(key: string, now: number) => Soon<Left>} look
 * @property {(key: string, now: number) => Soon<void>} reset
 */
/** @typedef {{ get: () => Soon<number | null>, set: (limit: number | null) => Soon<void> }} Dynamic the limit that callers have set */

export const DEFAULT_PREFIX = "@upstash/ratelimit";
const CONFIG = ["limiter", "prefix", "ephemeralCache", "enableProtection", "denyList"];
const REQUEST = ["rate", "ip", "userAgent", "country"];
const MOST_RATE = 2 ** 40;
const MOST_CACHED = 10_000;
/** The most tokens that a limit may be set to. */
export const MOST_DYNAMIC = 2 ** 20;

/**
 * The most units that the core counts in a sliding window of this length, in milliseconds.
 *
 * @type {(windowMs: number) => number}
 */
export const mostUnitsIn = (windowMs) => Math.min(Number.MAX_SAFE_INTEGER, Math.floor(2 ** 63 / (windowMs * 1000)));

export class Limiting {
  /** @type {Counting} */
  #algorithm;
  #tokens;
  #dynamic;
  #prefix;
  /** The time until which an identifier that was refused is refused without counting. */
  #cache;
  #denied;
  #clock = new Clock();

  /** @param {declared.RatelimitConfig} config @param {() => Counting} countingOf @param {Dynamic} [dynamic] */
  constructor(config, countingOf, dynamic) {
    const { prefix = DEFAULT_PREFIX, ephemeralCache, enableProtection = false, denyList } = fieldsOf(config, CONFIG);
    if (typeof prefix !== "string") throw invalid("prefix", "a string", prefix);
    if (denyList !== undefined && !enableProtection) throw invalid("enableProtection", "`true` beside a `denyList`", enableProtection);
    this.#algorithm = countingOf();
    this.#tokens = this.#algorithm.tokens;
    this.#dynamic = dynamic;
    this.#prefix = prefix;
    if (ephemeralCache === undefined) this.#cache = new Cache(new Map(), true);
    else if (ephemeralCache) this.#cache = new Cache(ephemeralCache, false);
    this.#denied = new Set(enableProtection ? requireList(denyList) : []);
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
      const refusal = { success: false, limit: this.#tokens, remaining: 0, reset: this.#realTime(blockedUntil) };
      return { ...refusal, pending: Promise.resolve(), reason: "cacheBlock" };
    }
    const limit = await this.#effective();
    const { success, remaining, reset } = await this.#algorithm.limit(key, rate, now);
    if (!success) this.#cache?.block(key, reset);
    else if (rate < 0) this.#cache?.delete(key);
    return { success, limit, remaining: Math.max(0, remaining), reset: this.#realTime(reset), pending: Promise.resolve() };
  };

  /** @type {declared.Ratelimit["blockUntilReady"]} */
  blockUntilReady = async (identifier, timeout) => {
    if (typeof timeout !== "number" || !(timeout > 0)) throw invalid("timeout", "a number of milliseconds above 0", timeout);
    const deadline = this.#now() + timeout;
    for (;;) {
      const said = await this.limit(identifier);
      if (said.success) return said;
      if (Object.hasOwn(said, "reason") && said.reason === "denyList") throw new Error(`\`identifier\`: expected one that is not denied, found ${said.deniedValue}`);
      const now = this.#now();
      const wait = Math.min(said.reset + this.#aheadMs(), deadline) - now;
      await new Promise((done) => setTimeout(done, wait > 0 ? Math.min(wait, LONGEST_TIMER_MS) : 100));
      if (this.#now() > deadline) return said;
    }
  };

  /** @type {declared.Ratelimit["getRemaining"]} */
  getRemaining = async (identifier) => {
    const limit = await this.#effective();
    const { remaining, reset } = await this.#algorithm.look(this.#key(identifier), this.#now());
    return { remaining: Math.max(0, remaining), reset: this.#realTime(reset), limit };
  };

  /** @type {declared.Ratelimit["resetUsedTokens"]} */
  resetUsedTokens = async (identifier) => {
    const key = this.#key(identifier);
    this.#cache?.delete(key);
    await this.#algorithm.reset(key, this.#now());
  };

  /** @type {declared.Ratelimit["setDynamicLimit"]} */
  setDynamicLimit = async ({ limit }) => {
    if (limit !== false) requireWhole("limit", limit, 1, MOST_DYNAMIC);
    await this.#dynamicLimit("setDynamicLimit").set(limit === false ? null : limit);
  };

  /** @type {declared.Ratelimit["getDynamicLimit"]} */
  getDynamicLimit = async () => ({ dynamicLimit: await this.#dynamicLimit("getDynamicLimit").get() });

  /** @type {(method: string) => Dynamic} */
  #dynamicLimit(method) {
    if (this.#dynamic !== undefined) return this.#dynamic;
    throw failure(ArgumentError, "INVALID_REQUEST", `\`${method}\`: expected a limiter with \`dynamicLimits: true\`, found one without`);
  }

  /** The tokens by which the next call is decided. */
  async #effective() {
    if (this.#dynamic === undefined) return this.#tokens;
    const tokens = (await this.#dynamic.get()) ?? this.#tokens;
    if (tokens !== this.#algorithm.tokens) this.#algorithm.resize(tokens);
    return tokens;
  }

  /** @type {(identifier: unknown) => string} */
  #key(identifier) {
    requireNoLonger("identifier", identifier);
    let joined;
    try {
      joined = [this.#prefix, identifier].join(":");
    } catch {
      throw invalidKey("identifier", typeof identifier === "symbol" ? "a symbol" : "an object without a text");
    }
    return shortText(joined, "identifier");
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

/**
 * The functions that say how requests are limited, and the one that knows what they have returned.
 *
 * @template Context
 * @param {{
 *   fixedWindow: (tokens: number, windowMs: number) => (context: Context) => Counting,
 *   slidingWindow: (tokens: number, windowMs: number) => (context: Context) => Counting,
 *   tokenBucket: (refillRate: number, intervalMs: number, maxTokens: number) => (context: Context) => Counting,
 * }} makers
 */
export function algorithmsOf(makers) {
  const made = new WeakSet();
  /** @type {(field: string, duration: string, make: (context: Context) => Counting) => any} */
  const algorithm = (field, duration, make) => {
    /** @type {(context: Context) => Counting} */
    const checked = (context) => withDuration(field, duration, () => make(context));
    made.add(checked);
    return checked;
  };
  return {
    /** @type {(tokens: number, window: declared.Duration) => declared.Algorithm} */
    fixedWindow(tokens, window) {
      requireNumber("tokens", tokens);
      return algorithm("window", window, makers.fixedWindow(tokens, milliseconds("window", window)));
    },
    /** @type {(tokens: number, window: declared.Duration) => declared.Algorithm} */
    slidingWindow(tokens, window) {
      requireWhole("tokens", tokens, 0);
      return algorithm("window", window, makers.slidingWindow(tokens, milliseconds("window", window)));
    },
    /** @type {(refillRate: number, interval: declared.Duration, maxTokens: number) => declared.Algorithm} */
    tokenBucket(refillRate, interval, maxTokens) {
      requireWhole("refillRate", refillRate, 1);
      requireWhole("maxTokens", maxTokens, 1);
      return algorithm("interval", interval, makers.tokenBucket(refillRate, milliseconds("interval", interval), maxTokens));
    },
    /** @type {(config: any, context: Context) => Counting} */
    counting(config, context) {
      const { limiter } = fieldsOf(config, ["limiter"]);
      if (!made.has(limiter)) throw invalid("limiter", "an algorithm such as `Ratelimit.slidingWindow(10, \"10 s\")`", limiter);
      return limiter(context);
    },
  };
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

/** Windows that begin at the same time for all identifiers, over counters. */
export class FixedWindow {
  #counters;
  #windowMs;

  /** @param {number} tokens @param {number} windowMs @param {KeyedCounters} counters */
  constructor(tokens, windowMs, counters) {
    this.tokens = tokens;
    this.#windowMs = windowMs;
    this.#counters = counters;
  }

  /** @type {(tokens: number) => void} */
  resize(tokens) {
    this.tokens = tokens;
  }

  /** @type {(key: string, rate: number, now: number) => Promise<Limited>} */
  async limit(key, rate, now) {
    const reset = endOfWindow(now, this.#windowMs);
    const remaining = this.tokens - (await this.#counters.add(text(key), rate, reset - now, now * 1000)).value;
    return { success: remaining >= 0, remaining, reset };
  }

  /** @type {(key: string, now: number) => Promise<Left>} */
  async look(key, now) {
    const used = (await this.#counters.get(text(key), now * 1000))?.value ?? 0;
    return { remaining: this.tokens - used, reset: endOfWindow(now, this.#windowMs) };
  }

  /** @type {(key: string, now: number) => Promise<void>} */
  async reset(key, now) {
    await this.#counters.delete(text(key), now * 1000);
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
export const text = (key) => `=${key}`;

/** @type {(now: number, windowMs: number) => number} */
export const endOfWindow = (now, windowMs) => (Math.floor(now / windowMs) + 1) * windowMs;

export const MOST_DURATION_MS = 36_500 * 86_400_000;
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
