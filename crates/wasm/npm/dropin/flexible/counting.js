// A limiter over counters, in memory or in Redis.
import { LONGEST_TIMER_MS, fieldsOf, keyText, requireNumber, requirePrimitive } from "../input.js";
import { RateLimiterAbstract } from "./abstract.js";
import { RateLimiterRes } from "./result.js";

/** @import * as declared from "../rate-limiter-flexible.js" */
/** @import { Counter, KeyedCounters, Soon } from "../counters.js" */
/** @typedef {string | number} Key */

/** The method that decides about points that were taken. */
export const settle = Symbol("settle");
/** The method that says at how many consumed points a key is blocked; `undefined` for more than the limiter's points. */
export const blocksFrom = Symbol("blocksFrom");

export class RateLimiterCounting extends RateLimiterAbstract {
  #counters;

  /** @param {declared.IRateLimiterOptions} options @param {(limiter: RateLimiterAbstract) => KeyedCounters} countersOf */
  constructor(options, countersOf) {
    super(options);
    this.#counters = countersOf(this);
  }

  /** @type {declared.RateLimiterMemory["consume"]} */
  async consume(key, pointsToConsume = 1, options = undefined) {
    let taken;
    try {
      taken = this.#add(key, pointsToConsume, options);
      if (taken instanceof Promise) taken = await taken; // counters in memory have no promise, and to wait takes as long as a decision
    } catch (error) {
      return this.#insured(error).consume(key, pointsToConsume, options);
    }
    return this[settle](key, taken, pointsToConsume);
  }

  /** @type {declared.RateLimiterMemory["penalty"]} */
  async penalty(key, points = 1, options = undefined) {
    try {
      return await this.#add(key, points, options);
    } catch (error) {
      return this.#insured(error).penalty(key, points, options);
    }
  }

  /** @type {declared.RateLimiterMemory["reward"]} */
  async reward(key, points = 1, options = undefined) {
    try {
      return await this.#add(key, -requireNumber("points", points), options);
    } catch (error) {
      return this.#insured(error).reward(key, points, options);
    }
  }

  /**
   * Refuses a key for some seconds; for ever if they are 0.
   *
   * @type {declared.RateLimiterMemory["block"]}
   */
  async block(key, secDuration) {
    const points = this.#blockedPoints();
    try {
      await this.#counters.block(this.#text(key), Math.trunc(points), spanOf(requireNumber("secDuration", secDuration)));
      return new RateLimiterRes(0, milliseconds(secDuration), points);
    } catch (error) {
      return this.#insured(error).block(key, secDuration);
    }
  }

  /** @type {declared.RateLimiterMemory["set"]} */
  async set(key, points, secDuration) {
    try {
      await this.#counters.put(this.#text(key), Math.trunc(requireNumber("points", points)), spanOf(secDuration));
      // theirs keeps a key for ever without a duration, but answers the limiter's own one; points stay as they were given
      return new RateLimiterRes(0, milliseconds(secDuration >= 0 ? secDuration : this.duration), points);
    } catch (error) {
      return this.#insured(error).set(key, points, secDuration);
    }
  }

  /** @type {declared.RateLimiterMemory["get"]} */
  async get(key) {
    try {
      const found = await this.#counters.get(this.#text(key));
      return found === undefined ? null : this.#result(found);
    } catch (error) {
      return this.#insured(error).get(key);
    }
  }

  /** @type {declared.RateLimiterMemory["delete"]} */
  async delete(key) {
    try {
      return await this.#counters.delete(this.#text(key));
    } catch (error) {
      return this.#insured(error).delete(key);
    }
  }

  /** @type {(key: Key, taken: RateLimiterRes, points: number) => Soon<RateLimiterRes>} */
  [settle](key, taken, points) {
    if (taken.consumedPoints > this.points) {
      if (this.#startsBlock(taken, points)) return this.#refuse(key, taken);
      throw taken;
    }
    const spreads = this.execEvenly && this.points > 0 && taken.msBeforeNext > 0 && !taken.isFirstInDuration;
    return spreads ? this.#delay(taken) : taken;
  }

  /** @type {() => number | undefined} */
  [blocksFrom]() {
    return undefined;
  }

  /** @type {(key: Key, points: number, options: object | undefined) => Soon<RateLimiterRes>} */
  #add(key, points, options) {
    requireNumber("points", points);
    const text = this.#text(key);
    const custom = options === undefined ? undefined : fieldsOf(options, ["customDuration"]).customDuration;
    const duration = custom >= 0 ? custom : this.duration;
    const counter = this.#counters.add(text, this.#counters.whole(text, points), spanOf(duration));
    return counter instanceof Promise ? counter.then((found) => this.#result(found, points)) : this.#result(counter, points);
  }

  /**
   * Whether a request beyond the points is the first of them, which blocks the key.
   *
   * @type {(taken: RateLimiterRes, points: number) => boolean}
   */
  #startsBlock({ consumedPoints }, points) {
    if (this.blockDuration <= 0) return false;
    const from = this[blocksFrom]();
    return from === undefined ? consumedPoints <= this.points + points : consumedPoints >= from && consumedPoints - points < from;
  }

  /**
   * Blocks the key and refuses the request.
   *
   * @type {(key: Key, taken: RateLimiterRes) => Promise<never>}
   */
  async #refuse(key, taken) {
    const { consumedPoints } = taken;
    let blocked;
    try {
      blocked = await this.#counters.block(this.#text(key), consumedPoints, this.msBlockDuration);
    } catch (error) {
      await this.#insured(error).block(key, this.blockDuration);
      throw taken;
    }
    throw new RateLimiterRes(0, blocked.leftMs, consumedPoints, blocked.isFirst || taken.isFirstInDuration);
  }

  /**
   * Waits so that the requests of a window spread over it.
   *
   * @type {(taken: RateLimiterRes) => Promise<RateLimiterRes>}
   */
  async #delay(taken) {
    let delay = Math.ceil(taken.msBeforeNext / (taken.remainingPoints + 2));
    if (delay < this.execEvenlyMinDelayMs) delay = taken.consumedPoints * this.execEvenlyMinDelayMs;
    taken.msBeforeNext = Math.max(taken.msBeforeNext - delay, 0);
    for (let left = delay; left >= 0; left -= LONGEST_TIMER_MS) await new Promise((done) => setTimeout(done, Math.min(left, LONGEST_TIMER_MS)));
    return taken;
  }

  /**
   * A key that is blocked without a count has the points of a block, and these ones.
   *
   * @type {(counter: Counter, points?: number) => RateLimiterRes}
   */
  #result({ value, leftMs, isFirst, isBlocked }, points = 0) {
    const msBeforeNext = leftMs === Infinity ? -1 : leftMs;
    const consumed = isBlocked ? this.#blockedPoints() + points : value;
    return new RateLimiterRes(Math.max(this.points - consumed, 0), msBeforeNext, consumed, isFirst);
  }

  #blockedPoints() {
    return this[blocksFrom]() ?? this.points + 1;
  }

  /** @type {(key: unknown) => string} */
  #text(key) {
    if (typeof key === "symbol") requirePrimitive("key", key); // no prefix can be put before it
    return keyText(this.getKey(/** @type {Key} */ (key)));
  }

  /**
   * The limiter that answers if the counters cannot.
   *
   * @type {(error: unknown) => any}
   */
  #insured(error) {
    if (this.insuranceLimiter === undefined || !this.#counters.isFailure(error)) throw error;
    return this.insuranceLimiter;
  }
}

/**
 * The milliseconds of some seconds as theirs answers them: -1 for a window that never ends.
 *
 * @type {(secDuration: number) => number}
 */
function milliseconds(secDuration) {
  return secDuration === 0 ? -1 : secDuration * 1000;
}

/** @type {(secDuration: number) => number} */
export function spanOf(secDuration) {
  return secDuration > 0 ? secDuration * 1000 : Infinity;
}
