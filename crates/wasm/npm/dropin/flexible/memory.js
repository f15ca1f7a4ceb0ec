import { Counters } from "../counters.js";
import { defineAbsent, fieldsOf } from "../input.js";
import { RateLimiterCounting } from "./counting.js";

/** @import * as declared from "../rate-limiter-flexible.js" */

/** A limiter in the memory of this process. */
export class RateLimiterMemory extends RateLimiterCounting {
  /** @param {declared.IRateLimiterOptions} options */
  constructor(options) {
    super(options, () => new Counters(fieldsOf(options, ["maxBytes"]).maxBytes));
  }

  /** @type {declared.RateLimiterMemory["get"]} */
  async get(key) {
    return (await super.get(key)) ?? (await this.insuranceLimiter?.get(key)) ?? null; // which counts keys that found no room
  }

  /** @type {declared.RateLimiterMemory["delete"]} */
  async delete(key) {
    const isOwn = await super.delete(key);
    const isInsured = (await this.insuranceLimiter?.delete(key)) ?? false;
    return isOwn || isInsured;
  }
}

const NO_DUMPS = "because the bytes of our dumps are not theirs: use `dump` and `restore` of a `Limiter`";
defineAbsent(RateLimiterMemory.prototype, { dump: NO_DUMPS, restore: NO_DUMPS });
