import { RateLimiterCounting, blocksFrom, settle } from "../flexible/counting.js";
import { RateLimiterRes } from "../flexible/result.js";
import { fieldsOf, invalid, requireNumber } from "../input.js";
import { RedisCounters, requireClient } from "./counters.js";

/** @import * as declared from "./rate-limiter-flexible.js" */
/** @typedef {string | number} Key */

const OPTIONS = ["storeClient", "inMemoryBlockOnConsumed", "inMemoryBlockDuration", "blockOnConsumed", "customIncrTtlLuaScript"];
const MOST_BLOCKED = 10_000;

/** A limiter in Redis, for all processes. */
export class RateLimiterRedis extends RateLimiterCounting {
  #client;
  /**
   * The times until which keys are refused without asking Redis.
   *
   * @type {Map<string, number>}
   */
  #blocked = new Map();
  #inMemoryBlockOnConsumed = 0;
  #inMemoryBlockDuration = 0;
  #blockOnConsumed = 0;

  /** @param {declared.IRateLimiterRedisOptions} options */
  constructor(options) {
    const given = fieldsOf(options, OPTIONS);
    if (given.customIncrTtlLuaScript !== undefined) {
      throw invalid("customIncrTtlLuaScript", "none, because Redis runs the script of this package", given.customIncrTtlLuaScript);
    }
    requireClient("storeClient", given.storeClient);
    super(options, ({ msDuration }) => new RedisCounters("rate-limiter-flexible", given.storeClient, msDuration > 0 ? msDuration : Infinity));
    this.#client = given.storeClient;
    this.blockOnConsumed = given.blockOnConsumed;
    this.inMemoryBlockOnConsumed = given.inMemoryBlockOnConsumed;
    this.inMemoryBlockDuration = given.inMemoryBlockDuration;
  }

  get client() {
    return this.#client;
  }

  /** All windows of a limiter in Redis are of one length. */
  get duration() {
    return super.duration;
  }

  set duration(duration) {
    const isMade = #client in this;
    if (isMade && duration !== this.duration) throw invalid("duration", `the seconds with which the limiter was made, ${this.duration}`, duration);
    super.duration = duration;
  }

  get blockOnConsumed() {
    return this.#blockOnConsumed;
  }

  set blockOnConsumed(consumed) {
    this.#blockOnConsumed = this.#threshold("blockOnConsumed", consumed);
  }

  get inMemoryBlockOnConsumed() {
    return this.#inMemoryBlockOnConsumed;
  }

  set inMemoryBlockOnConsumed(consumed) {
    this.#inMemoryBlockOnConsumed = this.#threshold("inMemoryBlockOnConsumed", consumed);
  }

  get inMemoryBlockDuration() {
    return this.#inMemoryBlockDuration;
  }

  set inMemoryBlockDuration(seconds) {
    const found = seconds ? requireNumber("inMemoryBlockDuration", seconds, 0) : 0;
    if (found > 0 && this.inMemoryBlockOnConsumed === 0) throw invalid("inMemoryBlockOnConsumed", "a number beside `inMemoryBlockDuration`", undefined);
    this.#inMemoryBlockDuration = found;
  }

  get msInMemoryBlockDuration() {
    return this.inMemoryBlockDuration * 1000;
  }

  /** @type {declared.RateLimiterRedis["consume"]} */
  async consume(key, pointsToConsume = 1, options = undefined) {
    const leftMs = this.getInMemoryBlockMsBeforeExpire(this.getKey(key));
    if (leftMs > 0) throw new RateLimiterRes(0, leftMs);
    return super.consume(key, pointsToConsume, options);
  }

  /** @type {declared.RateLimiterRedis["set"]} */
  async set(key, points, secDuration) {
    return super.set(key, points, secDuration >= 0 ? secDuration : this.duration);
  }

  /** @type {declared.RateLimiterRedis["delete"]} */
  async delete(key) {
    const wasThere = await super.delete(key);
    this.#blocked.delete(this.getKey(key));
    return wasThere;
  }

  /** @type {declared.RateLimiterRedis["deleteInMemoryBlockedAll"]} */
  deleteInMemoryBlockedAll() {
    this.#blocked.clear();
  }

  /** @type {declared.RateLimiterRedis["getInMemoryBlockMsBeforeExpire"]} */
  getInMemoryBlockMsBeforeExpire(rlKey) {
    return this.inMemoryBlockOnConsumed > 0 ? Math.max(0, (this.#blocked.get(rlKey) ?? 0) - Date.now()) : 0;
  }

  /** @type {(key: Key, taken: RateLimiterRes, points: number) => Promise<RateLimiterRes>} */
  async [settle](key, taken, points) {
    const blocksHere = this.inMemoryBlockOnConsumed > 0 && taken.consumedPoints >= this.inMemoryBlockOnConsumed;
    if (blocksHere && this.inMemoryBlockDuration === 0) {
      this.#block(key, taken.msBeforeNext);
      if (taken.consumedPoints > this.points) throw taken;
      return taken;
    }
    try {
      return await super[settle](key, taken, points);
    } catch (refused) {
      if (!blocksHere || !(refused instanceof RateLimiterRes)) throw refused;
      this.#block(key, this.msInMemoryBlockDuration);
      refused.msBeforeNext = this.msInMemoryBlockDuration;
      throw refused;
    }
  }

  /** @type {() => number | undefined} */
  [blocksFrom]() {
    return this.blockOnConsumed > this.points ? this.blockOnConsumed : undefined;
  }

  /**
   * Refuses a key for a time without asking Redis. Beyond a number of keys the oldest one is asked about again.
   *
   * @type {(key: Key, ms: number) => void}
   */
  #block(key, ms) {
    const rlKey = this.getKey(key);
    if (this.#blocked.size >= MOST_BLOCKED && !this.#blocked.has(rlKey)) this.#blocked.delete(/** @type {string} */ (this.#blocked.keys().next().value));
    this.#blocked.set(rlKey, Date.now() + ms);
  }

  /** @type {(field: string, consumed: unknown) => number} */
  #threshold(field, consumed) {
    if (!consumed) return 0;
    const found = requireNumber(field, consumed, 0);
    if (found > 0 && found < this.points) throw invalid(field, `at least the points, ${this.points}`, consumed);
    return found;
  }
}
