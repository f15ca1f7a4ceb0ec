// The classes of rolling-rate-limiter that keep their state in memory.
import { Limiter } from "tidegate";
import { Clock, defineAbsent, fieldsOf, invalid, requireNumber, requirePrimitive, requireWhole, shortText } from "./input.js";

/** @import * as declared from "./rolling-rate-limiter.js" */

/** The most actions that the core's log remembers. */
const MOST_REMEMBERED = 1_000;

/** What limiters have in common, whatever keeps their state. */
export class RateLimiter {
  /** @param {declared.RateLimiterOptions} options */
  constructor(options) {
    const { interval, maxInInterval, minDifference = 0 } = fieldsOf(options, ["interval", "maxInInterval", "minDifference"]);
    if (requireNumber("interval", interval) <= 0) throw invalid("interval", "a number above 0", interval);
    this.interval = microseconds("interval", interval);
    this.maxInInterval = requireWhole("maxInInterval", maxInInterval, 1, MOST_REMEMBERED);
    this.minDifference = microseconds("minDifference", requireNumber("minDifference", minDifference, 0));
  }

  /** @type {declared.RateLimiter["limit"]} */
  async limit(id) {
    return (await this.limitWithInfo(id)).blocked;
  }

  /** @type {declared.RateLimiter["wouldLimit"]} */
  async wouldLimit(id) {
    return (await this.wouldLimitWithInfo(id)).blocked;
  }

  /** @type {declared.RateLimiter["limitWithInfo"]} */
  async limitWithInfo() {
    throw new Error("Not implemented");
  }

  /** @type {declared.RateLimiter["wouldLimitWithInfo"]} */
  async wouldLimitWithInfo() {
    throw new Error("Not implemented");
  }

  /** @type {declared.RateLimiter["clear"]} */
  async clear() {
    throw new Error("Not implemented");
  }
}

defineAbsent(RateLimiter.prototype, {
  getTimestamps: "because no list holds the actions: use `wouldLimitWithInfo`",
}, { isAsync: true });

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
    return this.#info(allowed, isApart, this.#actions.peek(key, { cost: 1, now }).retryAfterUs, remaining);
  }

  /** @type {declared.RateLimiter["wouldLimitWithInfo"]} */
  async wouldLimitWithInfo(id) {
    const key = keyOf(id);
    const now = this.#clock.now();
    const { allowed, remaining } = this.#actions.peek(key, { cost: 1, now });
    const isApart = this.#newest?.peek(key, { cost: 1, now }).allowed ?? true;
    // after this action there is room for another one when there is now room for two
    const waitUs = this.maxInInterval === 1 ? this.interval : this.#actions.peek(key, { cost: 2, now }).retryAfterUs;
    return this.#info(allowed, isApart, waitUs, remaining);
  }

  /** @type {declared.RateLimiter["clear"]} */
  async clear(id) {
    const key = keyOf(id);
    const now = this.#clock.now();
    this.#actions.reset(key, { now });
    this.#newest?.reset(key, { now });
  }

  /** @type {(hasRoom: boolean, isApart: boolean, waitUs: number, actionsRemaining: number) => declared.RateLimitInfo} */
  #info(hasRoom, isApart, waitUs, actionsRemaining) {
    return {
      blocked: !hasRoom || !isApart,
      blockedDueToCount: !hasRoom,
      blockedDueToMinDifference: !isApart,
      millisecondsUntilAllowed: /** @type {declared.Milliseconds} */ (Math.ceil(Math.max(this.minDifference, waitUs) / 1000)),
      actionsRemaining,
    };
  }
}

/** As Node imports theirs, which is CommonJS. */
export default { RateLimiter, InMemoryRateLimiter };

/** @type {(limit: number, periodUs: number, maxBytes?: number) => Limiter} */
function log(limit, periodUs, maxBytes) {
  return new Limiter({ limits: [{ algorithm: "sliding_log", rates: [`${limit}/${periodUs}us`] }] }, { maxBytes });
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

/**
 * The key of an id: a value such as 7 or `undefined` and its text are the same id.
 *
 * @type {(id: unknown) => string}
 */
function keyOf(id) {
  requirePrimitive("id", id);
  return `=${shortText(String(id))}`;
}

/** @type {(name: string, milliseconds: number) => declared.Microseconds} */
function microseconds(name, milliseconds) {
  const us = Math.round(milliseconds * 1000);
  if ((us > 0 || milliseconds === 0) && us <= Number.MAX_SAFE_INTEGER) return /** @type {declared.Microseconds} */ (us);
  throw invalid(name, "0.001 ms to 285 years in milliseconds", milliseconds);
}
