// Counters as other libraries have them: each lasts for a span of its own, counts refused requests, too, and may fall below zero.
//
// All counting is the core's, in windows with `start = "first"`. So that these count every request, their limit is the largest
// number; so that a count may fall, it begins at `ZERO`. So that a counter can last for any span, all windows last for one long
// period, and the limiter's clock runs one period ahead of the real one: a window that begins at a time of the limiter's clock
// ends when the real clock shows that time.
import { ArgumentError, FullError, Limiter } from "tidegate";
import { Clock, failure } from "./input.js";

/** @typedef {{ value: number, leftMs: number, endsMs: number, isFirst: boolean, isBlocked?: boolean }} Counter */
/**
 * @template T
 * @typedef {T | Promise<T>} Soon
 */
/**
 * Counters in memory or in Redis. `isFailure` tells an error of the store from one of the caller.
 *
 * @typedef {object} KeyedCounters
 * @property {(key: string, nowUs?: number) => Soon<Counter | undefined>} get
 * @property {(key: string, units: number) => number} whole
 * @property {(key: string, units: number, spanMs: number, nowUs?: number) => Soon<Counter>} add
 * @property {(key: string, units: number, spanMs: number, nowUs?: number) => Soon<Counter>} put
 * @property {(key: string) => Soon<void>} giveBack
 * @property {(key: string, units: number, spanMs: number) => Soon<Counter>} block
 * @property {(key: string, nowUs?: number) => Soon<boolean>} delete
 * @property {(error: unknown) => boolean} isFailure
 */

const MOST_COUNT = Number.MAX_SAFE_INTEGER;
const PERIOD_US = 2 ** 52;
const ZERO = 2 ** 52;
/** A counter with this end never ends. */
const NEVER_US = 2 ** 52 - 1;
/** The most units that may be added at once. */
const MOST_UNITS = 2 ** 50;

/** @implements {KeyedCounters} */
export class Counters {
  #limiter;
  #clock;

  /** @param {number | undefined} maxBytes @param {Clock} [clock] */
  constructor(maxBytes, clock = new Clock()) {
    this.#clock = clock;
    /** @type {import("tidegate").Limit} */
    const limit = { algorithm: "fixed_window", limit: MOST_COUNT, period: `${PERIOD_US}us`, start: "first" };
    this.#limiter = new Limiter({ limits: [limit] }, { maxBytes });
  }

  /**
   * The counter of a key, if its window has not ended.
   *
   * @type {(key: string, nowUs?: number) => Counter | undefined}
   */
  get(key, nowUs = this.#clock.now()) {
    return this.#read(this.#limiter.check(key, { cost: 0, now: nowUs + PERIOD_US }), nowUs);
  }

  /**
   * Adds units, which may be negative. If the key has no counter, one begins that lasts for a span, which may be `Infinity`.
   *
   * @type {(key: string, units: number, spanMs: number, nowUs?: number) => Counter}
   */
  add(key, units, spanMs, nowUs = this.#clock.now()) {
    requireUnits(units);
    const now = nowUs + PERIOD_US;
    const before = this.#limiter.check(key, { cost: Math.max(units, 0), now });
    const found = this.#read(before, nowUs);
    if (found === undefined) return this.#begin(key, units, spanMs, nowUs, units > 0);
    if (!before.allowed || found.value + units < -MOST_UNITS) throw tooMany(units);
    if (units >= 0) return found;
    return /** @type {Counter} */ (this.#read(this.#limiter.refund(key, -units, { now }), nowUs)); // the key has one
  }

  /**
   * Takes one unit back, but not below 0.
   *
   * @type {(key: string) => void}
   */
  giveBack(key) {
    if ((this.get(key)?.value ?? 0) > 0) this.add(key, -1, 0);
  }

  /**
   * The whole units to add for units that may have a fraction, which is cut off their sum.
   *
   * @type {(key: string, units: number) => number}
   */
  whole(key, units) {
    if (Number.isInteger(units)) return units;
    const before = this.get(key)?.value ?? 0;
    return Math.trunc(before + units) - before;
  }

  /**
   * Begins a counter in place of any other.
   *
   * @type {(key: string, units: number, spanMs: number, nowUs?: number) => Counter}
   */
  put(key, units, spanMs, nowUs = this.#clock.now()) {
    requireUnits(units);
    return this.#begin(key, units, spanMs, nowUs);
  }

  /**
   * A key is blocked while its counter stands above what is allowed.
   *
   * @type {(key: string, units: number, spanMs: number) => Counter}
   */
  block(key, units, spanMs) {
    return this.put(key, units, spanMs);
  }

  /**
   * Returns whether there was a counter.
   *
   * @type {(key: string, nowUs?: number) => boolean}
   */
  delete(key, nowUs = this.#clock.now()) {
    const found = this.get(key, nowUs) !== undefined;
    this.#limiter.reset(key, { now: nowUs + PERIOD_US });
    return found;
  }

  clear() {
    this.#limiter.resetAll();
  }

  /** @type {(error: unknown) => boolean} */
  isFailure(error) {
    return error instanceof FullError;
  }

  /** @type {(key: string, units: number, spanMs: number, nowUs: number, hasRoom?: boolean) => Counter} */
  #begin(key, units, spanMs, nowUs, hasRoom = false) {
    const now = nowUs + PERIOD_US;
    if (!hasRoom) this.#limiter.check(key, { cost: 1, now }); // finds room for the key, if necessary that of expired ones
    this.#limiter.reset(key, { now });
    const endsUs = Math.min(nowUs + Math.max(1, Math.round(spanMs * 1000)), NEVER_US);
    this.#limiter.check(key, { cost: ZERO + units, now: endsUs });
    return { value: units, leftMs: spanMs, endsMs: (endsUs - this.#clock.aheadUs) / 1000, isFirst: true };
  }

  /** @type {(answer: import("tidegate").Decision, nowUs: number) => Counter | undefined} */
  #read({ remaining, resetAfterUs }, nowUs) {
    const count = MOST_COUNT - remaining;
    if (count < ZERO - 2 * MOST_UNITS) return undefined; // a new key, or the units that were added to it
    const endsUs = nowUs + resetAfterUs;
    const leftMs = endsUs === NEVER_US ? Infinity : resetAfterUs / 1000;
    return { value: count - ZERO, leftMs, endsMs: (endsUs - this.#clock.aheadUs) / 1000, isFirst: false };
  }
}

/** @type {(units: number) => void} */
function requireUnits(units) {
  if (!(Math.abs(units) <= MOST_UNITS)) throw tooMany(units);
}

/** @type {(units: number) => Error} */
function tooMany(units) {
  return failure(ArgumentError, "INVALID_COST", `expected a counter between -2^50 and 2^52, found one that would exceed this by ${units} units`);
}
