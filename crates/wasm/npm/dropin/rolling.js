// What the limiters of rolling-rate-limiter have in common, in memory and in Redis.
import { defineAbsent, fieldsOf, invalid, requireNumber, requirePrimitive, requireWhole, shortText } from "./input.js";

/** @import * as declared from "./rolling-rate-limiter.js" */

/** The most actions that the core's log remembers. */
export const MOST_REMEMBERED = 1_000;

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

/**
 * The policy of a log of actions.
 *
 * @type {(limit: number, periodUs: number) => import("tidegate").Limit}
 */
export const logOf = (limit, periodUs) => ({ algorithm: "sliding_log", rates: [`${limit}/${periodUs}us`] });

/**
 * What became of an action of a limiter.
 *
 * @type {(limiter: RateLimiter, hasRoom: boolean, isApart: boolean, waitUs: number, actionsRemaining: number) => declared.RateLimitInfo}
 */
export function infoOf({ minDifference }, hasRoom, isApart, waitUs, actionsRemaining) {
  return {
    blocked: !hasRoom || !isApart,
    blockedDueToCount: !hasRoom,
    blockedDueToMinDifference: !isApart,
    millisecondsUntilAllowed: /** @type {declared.Milliseconds} */ (Math.ceil(Math.max(minDifference, waitUs) / 1000)),
    actionsRemaining,
  };
}

/**
 * The key of an id: a value such as 7 or `undefined` and its text are the same id.
 *
 * @type {(id: unknown) => string}
 */
export function keyOf(id) {
  requirePrimitive("id", id);
  return `=${shortText(String(id))}`;
}

/** @type {(name: string, milliseconds: number) => declared.Microseconds} */
function microseconds(name, milliseconds) {
  const us = Math.round(milliseconds * 1000);
  if ((us > 0 || milliseconds === 0) && us <= Number.MAX_SAFE_INTEGER) return /** @type {declared.Microseconds} */ (us);
  throw invalid(name, "0.001 ms to 285 years in milliseconds", milliseconds);
}
