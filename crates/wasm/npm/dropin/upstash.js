// The single-region limiter of @upstash/ratelimit, with its state in the memory of this process.
import { Limiter } from "tidegate";
import { Counters } from "./counters.js";
import { defineAbsent, fieldsOf, invalid } from "./input.js";
import { FixedWindow, Limiting, algorithmsOf, endOfWindow, mostUnitsIn, text } from "./ratelimit.js";

/** @import * as declared from "./upstash.js" */
/** @import { Left, Limited } from "./ratelimit.js" */

const { counting, ...algorithms } = algorithmsOf({
  /** @returns {(maxBytes?: number) => FixedWindow} */
  fixedWindow: (tokens, windowMs) => (maxBytes) => new FixedWindow(tokens, windowMs, new Counters(maxBytes)),
  slidingWindow: (tokens, windowMs) => (maxBytes) => new SlidingWindow(tokens, windowMs, maxBytes),
  tokenBucket: (refillRate, intervalMs, maxTokens) => (maxBytes) => new TokenBucket(refillRate, intervalMs, maxTokens, maxBytes),
});

export class Ratelimit extends Limiting {
  /** @param {declared.RatelimitConfig} config */
  constructor(config) {
    const { maxBytes, dynamicLimits = false } = fieldsOf(config, ["maxBytes", "dynamicLimits"]);
    super(config, () => counting(config, maxBytes), dynamicLimits ? new DynamicLimit() : undefined);
  }

  /** Windows that begin at the same time for all identifiers. A refused request counts. */
  static fixedWindow = algorithms.fixedWindow;
  /** A window that moves: the requests of the last aligned window count by the part that it still covers. */
  static slidingWindow = algorithms.slidingWindow;
  /** A bucket that gets `refillRate` tokens after each interval from the first request on. */
  static tokenBucket = algorithms.tokenBucket;
}

defineAbsent(Ratelimit, { cachedFixedWindow: "because memory needs no cache: use `fixedWindow`" });

/** The limit that the caller has set. */
class DynamicLimit {
  /** @type {number | null} */
  #limit = null;

  get() {
    return this.#limit;
  }

  /** @type {(limit: number | null) => void} */
  set(limit) {
    this.#limit = limit;
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
  #mostUnits;

  /** @param {number} tokens @param {number} windowMs @param {number} [maxBytes] */
  constructor(tokens, windowMs, maxBytes) {
    this.tokens = tokens;
    this.#windowMs = windowMs;
    const mostUnits = mostUnitsIn(windowMs);
    const mostTokens = 4 * Math.max(1, tokens);
    this.#unitsPerToken = Math.min(windowMs, Math.floor(mostUnits / mostTokens));
    if (this.#unitsPerToken < 1) throw invalid("tokens", `at most ${Math.floor(mostUnits / 4)} in such a window`, tokens);
    this.#mostUnits = mostUnits;
    this.#limiter = new Limiter(this.#policy(mostTokens), { maxBytes });
  }

  /** @type {(tokens: number) => void} */
  resize(tokens) {
    const most = Math.floor(this.#mostUnits / this.#unitsPerToken / 4);
    if (tokens > most) throw invalid("limit", `at most ${most} in such a window`, tokens);
    this.#limiter.update(this.#policy(4 * tokens));
    this.tokens = tokens;
  }

  /** @type {(mostTokens: number) => import("tidegate").Policy} */
  #policy(mostTokens) {
    const limit = this.#unitsPerToken * mostTokens;
    return { limits: [{ algorithm: "sliding_window", limit, period: `${this.#windowMs}ms`, segments: 1 }], on_change: "keep" };
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
  #refillRate;
  #intervalMs;
  /** The time of the last refill, in milliseconds, of each bucket that is not full. */
  #refills;

  /** @param {number} refillRate @param {number} intervalMs @param {number} maxTokens @param {number} [maxBytes] */
  constructor(refillRate, intervalMs, maxTokens, maxBytes) {
    this.tokens = maxTokens;
    this.#refillRate = refillRate;
    this.#intervalMs = intervalMs;
    this.#limiter = new Limiter(this.#policy(maxTokens), { maxBytes });
    this.#refills = new Counters(maxBytes);
  }

  /** @type {(tokens: number) => void} */
  resize(tokens) {
    this.#limiter.update(this.#policy(tokens));
    this.tokens = tokens;
  }

  /** @type {(maxTokens: number) => import("tidegate").Policy} */
  #policy(maxTokens) {
    return { limits: [{ algorithm: "token_bucket", capacity: maxTokens, rate: `${this.#refillRate}/${this.#intervalMs}ms` }], on_change: "keep" };
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
