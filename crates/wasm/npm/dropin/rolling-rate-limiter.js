// The classes of rolling-rate-limiter that keep their state in memory.
import { Limiter } from "tidegate";
import { Clock, fieldsOf } from "./input.js";
import { RateLimiter, infoOf, keyOf, logOf } from "./rolling.js";

/** @import * as declared from "./rolling-rate-limiter.js" */

export { RateLimiter };

/** A limiter in the memory of this process. Actions that were blocked count, too. */
export class InMemoryRateLimiter extends RateLimiter {
  #actions;
  /** The newest action, as a limit of its own: the results tell both reasons apart. */
  #newest;
  #clock = new Clock();

  /** @param {declared.RateLimiterOptions} options */
  constructor(options) {
    super(options);
    const { interval, maxInInterval, minDifference } = this;
    const { maxBytes } = fieldsOf(options, ["maxBytes"]);
    this.#actions = log(maxInInterval, interval, maxBytes);
    // an action that has left the interval is forgotten
    if (minDifference > 0) this.#newest = log(1, Math.min(minDifference, interval), maxBytes);
  }

  /** @type {declared.RateLimiter["limitWithInfo"]} */
  async limitWithInfo(id) {
    const key = keyOf(id);
    const now = this.#clock.now();
    const { allowed, remaining } = act(this.#actions, key, now);
    const isApart = this.#newest === undefined || act(this.#newest, key, now).allowed;
    return infoOf(this, allowed, isApart, this.#actions.peek(key, { cost: 1, now }).retryAfterUs, remaining);
  }

  /** @type {declared.RateLimiter["wouldLimitWithInfo"]} */
  async wouldLimitWithInfo(id) {
    const key = keyOf(id);
    const now = this.#clock.now();
    const { allowed, remaining } = this.#actions.peek(key, { cost: 1, now });
    const isApart = this.#newest?.peek(key, { cost: 1, now }).allowed ?? true;
    // after this action there is room for another one when there is now room for two
    const waitUs = this.maxInInterval === 1 ? this.interval : this.#actions.peek(key, { cost: 2, now }).retryAfterUs;
    return infoOf(this, allowed, isApart, waitUs, remaining);
  }

  /** @type {declared.RateLimiter["clear"]} */
  async clear(id) {
    const key = keyOf(id);
    const now = this.#clock.now();
    this.#actions.reset(key, { now });
    this.#newest?.reset(key, { now });
  }
}

/** As Node imports theirs, which is CommonJS. */
export default { RateLimiter, InMemoryRateLimiter };

/** @type {(limit: number, periodUs: number, maxBytes?: number) => Limiter} */
function log(limit, periodUs, maxBytes) {
  return new Limiter({ limits: [logOf(limit, periodUs)] }, { maxBytes });
}

/**
 * Counts an action, whether or not there is room for it. The option `count_denied` would count every question about
 * the next action, too.
 *
 * @type {(limiter: Limiter, key: string, now: number) => import("tidegate").Decision}
 */
function act(limiter, key, now) {
  const decision = limiter.check(key, { now });
  if (!decision.allowed) /** @type {any} */ (limiter)[Symbol.for("tidegate.charge")](key, 1, now);
  return decision;
}
