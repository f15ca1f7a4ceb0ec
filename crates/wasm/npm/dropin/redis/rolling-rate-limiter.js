// The classes of rolling-rate-limiter, with those that keep their state in Redis.
import memory from "../rolling-rate-limiter.js";
import { Clock, fieldsOf, invalid } from "../input.js";
import { MOST_REMEMBERED, RateLimiter, infoOf, keyOf, logOf } from "../rolling.js";
import { known, limiterOf } from "./counters.js";

/** @import * as declared from "./rolling-rate-limiter.js" */
/** @typedef {import("../rolling-rate-limiter.js").Id} Id */

export * from "../rolling-rate-limiter.js";

const NAME = "rolling-rate-limiter";
const KEEP = { on_change: "keep" };

/**
 * A limiter in Redis, for all processes. Actions that were blocked count, too. All objects of a namespace share the actions of an id,
 * whatever their `maxInInterval`, so each keeps as many actions as the core's log remembers.
 */
class BaseRedisRateLimiter extends RateLimiter {
  /** Remembers each action, and the newest one as a limit of its own: the results tell both reasons apart. */
  #actions;
  /** The same actions for questions, which it does not count: the actions' own limiter answers as if it counted them. */
  #questions;
  #clock = new Clock();
  client;
  namespace;

  /** @param {declared.RedisRateLimiterOptions} options */
  constructor(options) {
    super(options);
    const { client, namespace } = fieldsOf(options, ["client", "namespace"]);
    if (typeof namespace !== "string") throw invalid("namespace", "a string", namespace);
    this.client = client;
    this.namespace = namespace;
    const { interval, minDifference } = this;
    /** @type {(limit: number, periodUs: number, name: string) => import("tidegate").Limit} */
    const log = (limit, periodUs, name) => ({ ...logOf(limit, periodUs), name });
    const all = log(MOST_REMEMBERED, interval, "actions");
    // an action that has left the interval is forgotten
    const newest = log(1, Math.max(1, Math.min(minDifference, interval)), "newest");
    this.#actions = limiterOf(NAME, client, [all, newest].map((limit) => ({ ...limit, count_denied: true })), undefined, KEEP);
    this.#questions = limiterOf(NAME, client, [all], undefined, KEEP);
  }

  /** @type {declared.RedisRateLimiter["makeKey"]} */
  makeKey(id) {
    return `${this.namespace}${id}`;
  }

  /** @type {declared.RedisRateLimiter["limitWithInfo"]} */
  async limitWithInfo(id) {
    const key = this.#key(id);
    const now = this.#clock.now();
    const [all, newest] = known(await this.#actions.decide(key, { now })).limits;
    const left = all.remaining - this.#others;
    const isApart = this.minDifference === 0 || newest.allowed;
    const waitUs = left > 0 ? 0 : known(await this.#questions.peek(key, { cost: this.#others + 1, now })).retryAfterUs;
    return infoOf(this, all.allowed && left >= 0, isApart, waitUs, Math.max(0, left));
  }

  /** @type {declared.RedisRateLimiter["wouldLimitWithInfo"]} */
  async wouldLimitWithInfo(id) {
    const key = this.#key(id);
    const now = this.#clock.now();
    const { maxInInterval, interval, minDifference } = this;
    /** @type {(room: number) => Promise<any>} */
    const ask = (room) => this.#questions.peek(key, { cost: room, now });
    const cost = this.#others + 1;
    // after this action there is room for another one when there is now room for two; when all is free, the newest action has left
    const [one, two, none] = (await Promise.all([ask(cost), ask(Math.min(MOST_REMEMBERED, cost + 1)), ask(MOST_REMEMBERED)])).map(known);
    const isApart = none.allowed || none.retryAfterUs <= interval - Math.min(minDifference, interval);
    return infoOf(this, one.allowed, isApart, maxInInterval === 1 ? interval : two.retryAfterUs, one.allowed ? one.remaining : 0);
  }

  /** @type {declared.RedisRateLimiter["clear"]} */
  async clear(id) {
    known(await this.#actions.reset(this.#key(id), { now: this.#clock.now() }));
  }

  /** How many actions the log has room for beside those of this limiter. */
  get #others() {
    return MOST_REMEMBERED - this.maxInInterval;
  }

  /** @type {(id: Id) => string} */
  #key(id) {
    keyOf(id); // which tells an id that has no text
    return keyOf(this.makeKey(id));
  }
}

export class NodeRedisRateLimiter extends BaseRedisRateLimiter {}

export class IORedisRateLimiter extends BaseRedisRateLimiter {}

export class RedisRateLimiter extends BaseRedisRateLimiter {
  detectedClientType;

  /** @param {declared.RedisRateLimiterOptions} options */
  constructor(options) {
    super(options);
    this.detectedClientType = RedisRateLimiter.determineRedisClientType(this.client);
  }

  /** @type {typeof declared.RedisRateLimiter.determineRedisClientType} */
  static determineRedisClientType(client) {
    if (typeof client !== "object" || client === null) return null;
    if ("zRemRangeByScore" in client && "ZREMRANGEBYSCORE" in client) return "node-redis";
    return "zremrangebyscore" in client ? "ioredis" : null;
  }
}

/** As Node imports theirs, which is CommonJS. */
export default { ...memory, IORedisRateLimiter, NodeRedisRateLimiter, RedisRateLimiter };
