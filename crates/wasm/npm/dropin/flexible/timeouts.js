// A limiter that must answer within a time.
import { LONGEST_TIMER_MS, fieldsOf, requireNumber } from "../input.js";
import { RateLimiterAbstract, requireLimiter } from "./abstract.js";

/** @import * as declared from "../rate-limiter-flexible.js" */

/** A limiter with a deadline. */
export class RLWrapperTimeouts extends RateLimiterAbstract {
  /** @type {any} */
  #limiter;
  #timeoutMs = 0;

  /** @param {declared.IRLWrapperTimeoutsOptions} options */
  constructor(options) {
    const { limiter, timeoutMs = 0, ...own } = fieldsOf(options, ["limiter", "timeoutMs", "blockDuration", "execEvenly", "execEvenlyMinDelayMs", "keyPrefix", "insuranceLimiter"]);
    super({ ...own, points: 0, duration: 0 });
    this.limiter = limiter;
    this.timeoutMs = timeoutMs;
  }

  get limiter() {
    return this.#limiter;
  }

  set limiter(limiter) {
    this.#limiter = requireLimiter("limiter", limiter);
    this.insuranceLimiter ??= limiter.insuranceLimiter;
  }

  get timeoutMs() {
    return this.#timeoutMs;
  }

  set timeoutMs(ms) {
    this.#timeoutMs = requireNumber("timeoutMs", ms, 0);
  }

  /** @type {declared.RLWrapperTimeouts["consume"]} */
  consume(key, points = 1, options = {}) {
    return this.#within("consume", [key, points, options]);
  }

  /** @type {declared.RLWrapperTimeouts["penalty"]} */
  penalty(key, points = 1, options = {}) {
    return this.#within("penalty", [key, points, options]);
  }

  /** @type {declared.RLWrapperTimeouts["reward"]} */
  reward(key, points = 1, options = {}) {
    return this.#within("reward", [key, points, options]);
  }

  /** @type {declared.RLWrapperTimeouts["get"]} */
  get(key, options = {}) {
    return this.#within("get", [key, options]);
  }

  /** @type {declared.RLWrapperTimeouts["set"]} */
  set(key, points, secDuration, options = {}) {
    return this.#within("set", [key, points, secDuration, options]);
  }

  /** @type {declared.RLWrapperTimeouts["block"]} */
  block(key, secDuration, options = {}) {
    return this.#within("block", [key, secDuration, options]);
  }

  /** @type {declared.RLWrapperTimeouts["delete"]} */
  delete(key, options = {}) {
    return this.#within("delete", [key, options]);
  }

  /** @type {(name: string, args: unknown[]) => Promise<any>} */
  async #within(name, args) {
    let timer;
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error("Operation timed out")), Math.min(this.timeoutMs, LONGEST_TIMER_MS));
    });
    try {
      return await Promise.race([this.limiter[name](...args), late]);
    } catch (error) {
      if (!(error instanceof Error) || this.insuranceLimiter === undefined) throw error; // a refusal is no error
      return /** @type {any} */ (this.insuranceLimiter)[name](...args);
    } finally {
      clearTimeout(timer);
    }
  }
}
