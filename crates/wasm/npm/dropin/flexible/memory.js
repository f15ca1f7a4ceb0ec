import { FullError } from "tidegate";
import { Counters } from "../counters.js";
import { defineAbsent, fieldsOf, keyText, requireNumber, requirePrimitive } from "../input.js";
import { RateLimiterAbstract } from "./abstract.js";
import { RateLimiterRes } from "./result.js";

/** @import * as declared from "../rate-limiter-flexible.js" */
/** @typedef {string | number} Key */

/** A limiter in the memory of this process. */
export class RateLimiterMemory extends RateLimiterAbstract {
  #counters;

  /** @param {declared.IRateLimiterOptions} options */
  constructor(options) {
    super(options);
    this.#counters = new Counters(fieldsOf(options, ["maxBytes"]).maxBytes);
  }

  /** @type {declared.RateLimiterMemory["consume"]} */
  async consume(key, pointsToConsume = 1, options = undefined) {
    let taken;
    try {
      taken = this.#add(key, pointsToConsume, options);
    } catch (error) {
      return this.#insured(error).consume(key, pointsToConsume, options);
    }
    if (taken.consumedPoints > this.points) throw this.#refused(key, taken, pointsToConsume);
    if (this.execEvenly && this.points > 0 && taken.msBeforeNext > 0 && !taken.isFirstInDuration) await this.#delay(taken);
    return taken;
  }

  /** @type {declared.RateLimiterMemory["penalty"]} */
  async penalty(key, points = 1, options = undefined) {
    try {
      return this.#add(key, points, options);
    } catch (error) {
      return this.#insured(error).penalty(key, points, options);
    }
  }

  /** @type {declared.RateLimiterMemory["reward"]} */
  async reward(key, points = 1, options = undefined) {
    try {
      return this.#add(key, -requireNumber("points", points), options);
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
    try {
      return this.#put(key, this.points + 1, requireNumber("secDuration", secDuration));
    } catch (error) {
      return this.#insured(error).block(key, secDuration);
    }
  }

  /** @type {declared.RateLimiterMemory["set"]} */
  async set(key, points, secDuration) {
    try {
      const put = this.#put(key, requireNumber("points", points), secDuration);
      // theirs keeps a key for ever without a duration, but answers the limiter's own one
      if (!(secDuration >= 0)) put.msBeforeNext = milliseconds(this.duration);
      return put;
    } catch (error) {
      return this.#insured(error).set(key, points, secDuration);
    }
  }

  /** @type {declared.RateLimiterMemory["get"]} */
  async get(key) {
    const found = this.#counters.get(this.#text(key));
    if (found !== undefined) return this.#result(found);
    return (await this.insuranceLimiter?.get(key)) ?? null; // which counts keys that found no room
  }

  /** @type {declared.RateLimiterMemory["delete"]} */
  async delete(key) {
    const isOwn = this.#counters.delete(this.#text(key));
    const isInsured = (await this.insuranceLimiter?.delete(key)) ?? false;
    return isOwn || isInsured;
  }

  /** @type {(key: Key, points: number, options: object | undefined) => RateLimiterRes} */
  #add(key, points, options) {
    requireNumber("points", points);
    const text = this.#text(key);
    const custom = options === undefined ? undefined : fieldsOf(options, ["customDuration"]).customDuration;
    const duration = custom >= 0 ? custom : this.duration;
    const before = Number.isInteger(points) ? 0 : (this.#counters.get(text)?.value ?? 0);
    const units = Math.trunc(before + points) - before; // the points of a key are whole
    return this.#result(this.#counters.add(text, units, spanOf(duration)));
  }

  /**
   * The points of the answer stay as they were given, as theirs.
   *
   * @type {(key: Key, points: number, secDuration: number) => RateLimiterRes}
   */
  #put(key, points, secDuration) {
    this.#counters.put(this.#text(key), Math.trunc(points), spanOf(secDuration));
    return new RateLimiterRes(0, milliseconds(secDuration), points);
  }

  /**
   * The answer to a request beyond the points. The first of them blocks the key.
   *
   * @type {(key: Key, taken: RateLimiterRes, points: number) => RateLimiterRes}
   */
  #refused(key, taken, points) {
    if (this.blockDuration <= 0 || taken.consumedPoints > this.points + points) return taken;
    const blocked = this.#counters.put(this.#text(key), taken.consumedPoints, this.msBlockDuration);
    return new RateLimiterRes(0, blocked.leftMs, blocked.value, true);
  }

  /**
   * Waits so that the requests of a window spread over it.
   *
   * @type {(taken: RateLimiterRes) => Promise<void>}
   */
  async #delay(taken) {
    let delay = Math.ceil(taken.msBeforeNext / (taken.remainingPoints + 2));
    if (delay < this.execEvenlyMinDelayMs) delay = taken.consumedPoints * this.execEvenlyMinDelayMs;
    taken.msBeforeNext = Math.max(taken.msBeforeNext - delay, 0);
    await new Promise((done) => setTimeout(done, delay));
  }

  /** @type {(counter: import("../counters.js").Counter) => RateLimiterRes} */
  #result({ value, leftMs, isFirst }) {
    const msBeforeNext = leftMs === Infinity ? -1 : leftMs;
    return new RateLimiterRes(Math.max(this.points - value, 0), msBeforeNext, value, isFirst);
  }

  /** @type {(key: unknown) => string} */
  #text(key) {
    if (typeof key === "symbol") requirePrimitive("key", key); // no prefix can be put before it
    return keyText(this.getKey(/** @type {Key} */ (key)));
  }

  /**
   * The limiter that answers if there is no room for a key.
   *
   * @type {(error: unknown) => any}
   */
  #insured(error) {
    if (!(error instanceof FullError) || this.insuranceLimiter === undefined) throw error;
    return this.insuranceLimiter;
  }
}

const NO_DUMPS = "because the bytes of our dumps are not theirs: use `dump` and `restore` of a `Limiter`";
defineAbsent(RateLimiterMemory.prototype, { dump: NO_DUMPS, restore: NO_DUMPS });

/**
 * The milliseconds of some seconds as theirs answers them: -1 for a window that never ends.
 *
 * @type {(secDuration: number) => number}
 */
function milliseconds(secDuration) {
  return secDuration === 0 ? -1 : secDuration * 1000;
}

/** @type {(secDuration: number) => number} */
function spanOf(secDuration) {
  return secDuration > 0 ? secDuration * 1000 : Infinity;
}
