// Limiters that are made of others.
import { fieldsOf, invalid } from "../input.js";
import { RateLimiterCompatibleAbstract, requireLimiter } from "./abstract.js";
import { RateLimiterRes } from "./result.js";

/** @import * as declared from "../rate-limiter-flexible.js" */
/** @typedef {string | number} Key */

const LISTS = ["limiter", "blackList", "whiteList", "isBlackListed", "isWhiteListed", "runActionAnyway"];

/** Consumes of several limiters at once. The results are those of each limiter by its prefix. */
export class RateLimiterUnion {
  #limiters;

  /** @param {any[]} limiters */
  constructor(...limiters) {
    if (limiters.length === 0) throw invalid("limiters", "at least one rate limiter", undefined);
    limiters.forEach((limiter, place) => requireLimiter(`limiters[${place}]`, limiter));
    this.#limiters = limiters;
  }

  /** @type {declared.RateLimiterUnion["consume"]} */
  async consume(key, points = 1) {
    const settled = await Promise.allSettled(this.#limiters.map((limiter) => limiter.consume(key, points)));
    const refusals = settled.filter(({ status }) => status === "rejected");
    /** @type {Record<string, declared.RateLimiterRes>} */
    const results = {};
    settled.forEach((one, place) => {
      if (refusals.length > 0 && one.status === "fulfilled") return;
      results[this.#limiters[place].keyPrefix] = one.status === "fulfilled" ? one.value : one.reason;
    });
    if (refusals.length > 0) throw results;
    return results;
  }
}

/** A limiter behind lists of keys that always pass or never pass. */
export class RLWrapperBlackAndWhite extends RateLimiterCompatibleAbstract {
  limiter;
  runActionAnyway;
  /** @type {any} */
  #blackList;
  /** @type {any} */
  #whiteList;
  /** @type {any} */
  #isBlackListed;
  /** @type {any} */
  #isWhiteListed;

  /** @param {declared.IRLWrapperBlackAndWhiteOptions} options */
  constructor(options) {
    super();
    const { limiter, runActionAnyway = false, ...lists } = fieldsOf(options, LISTS);
    this.limiter = requireLimiter("limiter", limiter);
    Object.assign(this, lists);
    this.runActionAnyway = runActionAnyway;
  }

  get blackList() {
    return this.#blackList;
  }

  set blackList(keys) {
    this.#blackList = requireList("blackList", keys ?? []);
  }

  get whiteList() {
    return this.#whiteList;
  }

  set whiteList(keys) {
    this.#whiteList = requireList("whiteList", keys ?? []);
  }

  get isBlackListed() {
    return this.#isBlackListed;
  }

  set isBlackListed(isListed) {
    this.#isBlackListed = requireFunction("isBlackListed", isListed === undefined ? () => false : isListed);
  }

  get isWhiteListed() {
    return this.#isWhiteListed;
  }

  set isWhiteListed(isListed) {
    this.#isWhiteListed = requireFunction("isWhiteListed", isListed === undefined ? () => false : isListed);
  }

  get keyPrefix() {
    return this.limiter.keyPrefix;
  }

  get blockDuration() {
    return this.limiter.blockDuration;
  }

  set blockDuration(duration) {
    this.limiter.blockDuration = duration;
  }

  get execEvenly() {
    return this.limiter.execEvenly;
  }

  set execEvenly(isEven) {
    this.limiter.execEvenly = isEven;
  }

  /** @type {declared.RLWrapperBlackAndWhite["consume"]} */
  async consume(key, points = 1, options = {}) {
    const listed = this.#listed("consume", [key, points, options]);
    if (listed === undefined) return this.limiter.consume(key, points, options);
    if (listed.msBeforeNext > 0) throw listed;
    return listed;
  }

  /** @type {declared.RLWrapperBlackAndWhite["penalty"]} */
  async penalty(key, points = 1, options = {}) {
    return this.#unlessListed("penalty", [key, points, options]);
  }

  /** @type {declared.RLWrapperBlackAndWhite["reward"]} */
  async reward(key, points = 1, options = {}) {
    return this.#unlessListed("reward", [key, points, options]);
  }

  /** @type {declared.RLWrapperBlackAndWhite["block"]} */
  async block(key, secDuration, options = {}) {
    return this.#unlessListed("block", [key, secDuration, options]);
  }

  /** @type {declared.RLWrapperBlackAndWhite["set"]} */
  async set(key, points, secDuration, options = {}) {
    return this.#unlessListed("set", [key, points, secDuration, options]);
  }

  /** @type {declared.RLWrapperBlackAndWhite["get"]} */
  async get(key, options = {}) {
    return this.runActionAnyway ? this.limiter.get(key, options) : this.#unlessListed("get", [key, options]);
  }

  /** @type {declared.RLWrapperBlackAndWhite["delete"]} */
  async delete(key, options = {}) {
    return this.limiter.delete(key, options);
  }

  /** @type {(action: string, args: unknown[]) => any} */
  #unlessListed(action, args) {
    return this.#listed(action, args) ?? this.limiter[action](...args);
  }

  /**
   * The result for a key on a list.
   *
   * @type {(action: string, args: unknown[]) => RateLimiterRes | undefined}
   */
  #listed(action, args) {
    const [key] = args;
    const isWhite = this.isWhiteListedSomewhere(key);
    if (!isWhite && !this.isBlackListedSomewhere(key)) return undefined;
    if (this.runActionAnyway) this.limiter[action](...args).catch(() => {}); // the list has decided
    return isWhite ? this.getWhiteRes() : this.getBlackRes();
  }

  /** @type {(key: unknown) => boolean} */
  isBlackListedSomewhere(key) {
    return this.blackList.includes(key) || this.isBlackListed(key);
  }

  /** @type {(key: unknown) => boolean} */
  isWhiteListedSomewhere(key) {
    return this.whiteList.includes(key) || this.isWhiteListed(key);
  }

  getBlackRes() {
    return new RateLimiterRes(0, Number.MAX_SAFE_INTEGER);
  }

  getWhiteRes() {
    return new RateLimiterRes(Number.MAX_SAFE_INTEGER, 0);
  }

  async rejectBlack() {
    throw this.getBlackRes();
  }

  async resolveBlack() {
    return this.getBlackRes();
  }

  async resolveWhite() {
    return this.getWhiteRes();
  }
}

/** A limiter, and another one for bursts beyond it. */
export class BurstyRateLimiter {
  #rateLimiter;
  #burstLimiter;

  /** @param {declared.RateLimiterLike} rateLimiter @param {declared.RateLimiterLike} burstLimiter */
  constructor(rateLimiter, burstLimiter) {
    this.#rateLimiter = requireLimiter("rateLimiter", rateLimiter);
    this.#burstLimiter = requireLimiter("burstLimiter", burstLimiter);
  }

  get points() {
    return this.#rateLimiter.points;
  }

  /** @type {declared.BurstyRateLimiter["consume"]} */
  async consume(key, pointsToConsume = 1, options = {}) {
    try {
      return await this.#rateLimiter.consume(key, pointsToConsume, options);
    } catch (/** @type {any} */ refusal) {
      if (refusal instanceof Error) throw refusal;
      try {
        return together(refusal, await this.#burstLimiter.consume(key, pointsToConsume, options));
      } catch (/** @type {any} */ burst) {
        throw burst instanceof Error ? burst : together(refusal, burst);
      }
    }
  }

  /** @type {declared.BurstyRateLimiter["get"]} */
  async get(key) {
    const [rate, burst] = await Promise.all([this.#rateLimiter.get(key), this.#burstLimiter.get(key)]);
    return rate === null ? null : together(rate, burst);
  }
}

/** @type {(rate: RateLimiterRes, burst: RateLimiterRes | null) => RateLimiterRes} */
function together({ remainingPoints, msBeforeNext, consumedPoints, isFirstInDuration }, burst) {
  const ms = Math.min(msBeforeNext, burst?.msBeforeNext ?? 0);
  return new RateLimiterRes(remainingPoints, ms, consumedPoints, isFirstInDuration);
}

/** @type {(field: string, keys: unknown) => unknown[]} */
function requireList(field, keys) {
  if (Array.isArray(keys)) return keys;
  throw invalid(field, "an array of keys", keys);
}

/** @type {(field: string, isListed: unknown) => Function} */
function requireFunction(field, isListed) {
  if (typeof isListed === "function") return isListed;
  throw invalid(field, "a function", isListed);
}
