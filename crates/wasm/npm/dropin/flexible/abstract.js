import { fieldsOf, invalid, requireNumber } from "../input.js";

/** @import * as declared from "../rate-limiter-flexible.js" */

const OPTIONS = ["points", "duration", "blockDuration", "execEvenly", "execEvenlyMinDelayMs", "keyPrefix", "insuranceLimiter"];

/** What a class needs to be used as a limiter. */
export class RateLimiterCompatibleAbstract {}

for (const name of ["consume", "penalty", "reward", "get", "set", "block", "delete"]) {
  const value = () => { throw new Error(`expected a class with the method \`${name}\`, found none`); };
  Object.defineProperty(RateLimiterCompatibleAbstract.prototype, name, { __proto__: null, value, writable: true, configurable: true });
}

for (const name of ["keyPrefix", "blockDuration", "execEvenly"]) {
  const fail = () => { throw new Error(`expected a class with the property \`${name}\`, found none`); };
  Object.defineProperty(RateLimiterCompatibleAbstract.prototype, name, { __proto__: null, get: fail, set: fail, configurable: true });
}

/** The options of a limiter, and the names of its keys. */
export class RateLimiterAbstract extends RateLimiterCompatibleAbstract {
  /** @type {any} */
  #points;
  /** @type {any} */
  #duration;
  /** @type {any} */
  #blockDuration;
  /** @type {any} */
  #execEvenly;
  /** @type {any} */
  #keyPrefix;
  /** @type {number | undefined} */
  #execEvenlyMinDelayMs;
  /** @type {declared.RateLimiterLike | undefined} */
  #insuranceLimiter;

  /** @param {declared.IRateLimiterOptions} options */
  constructor(options) {
    super();
    const given = fieldsOf(options, OPTIONS);
    for (const name of OPTIONS) /** @type {any} */ (this)[name] = given[name];
  }

  get points() {
    return this.#points;
  }

  set points(points) {
    this.#points = requireNumber("points", points);
  }

  get duration() {
    return this.#duration;
  }

  set duration(duration) {
    this.#duration = requireNumber("duration", duration, 0);
  }

  get msDuration() {
    return this.duration * 1000;
  }

  get blockDuration() {
    return this.#blockDuration;
  }

  set blockDuration(duration) {
    this.#blockDuration = requireNumber("blockDuration", duration === undefined ? 0 : duration);
  }

  get msBlockDuration() {
    return this.blockDuration * 1000;
  }

  get execEvenly() {
    return this.#execEvenly;
  }

  set execEvenly(isEven) {
    this.#execEvenly = Boolean(isEven);
  }

  get execEvenlyMinDelayMs() {
    return this.#execEvenlyMinDelayMs ?? (this.points > 0 ? Math.ceil(this.msDuration / this.points) : 0);
  }

  set execEvenlyMinDelayMs(delay) {
    this.#execEvenlyMinDelayMs = delay === undefined ? delay : requireNumber("execEvenlyMinDelayMs", delay);
  }

  get keyPrefix() {
    return this.#keyPrefix;
  }

  set keyPrefix(prefix) {
    if (prefix === undefined) prefix = "rlflx";
    if (typeof prefix !== "string") throw invalid("keyPrefix", "a string", prefix);
    this.#keyPrefix = prefix;
  }

  /** The limiter that answers if this one has no room for a key. */
  get insuranceLimiter() {
    return this.#insuranceLimiter;
  }

  set insuranceLimiter(limiter) {
    limiter ??= undefined; // null is no limiter
    if (limiter !== undefined) {
      requireLimiter("insuranceLimiter", limiter);
      limiter.blockDuration = this.blockDuration;
      limiter.execEvenly = this.execEvenly;
    }
    this.#insuranceLimiter = limiter;
  }

  /** @type {declared.RateLimiterAbstract["getKey"]} */
  getKey(key) {
    return this.keyPrefix.length > 0 ? `${this.keyPrefix}:${key}` : /** @type {string} */ (key); // of theirs it is declared so
  }

  /** @type {declared.RateLimiterAbstract["parseKey"]} */
  parseKey(key) {
    return this.keyPrefix.length > 0 ? key.substring(this.keyPrefix.length + 1) : key;
  }
}

/**
 * Limiters of other packages are limiters, too.
 *
 * @type {(field: string, limiter: any) => any}
 */
export function requireLimiter(field, limiter) {
  if (typeof limiter?.consume === "function") return limiter;
  throw invalid(field, "a rate limiter", limiter);
}
