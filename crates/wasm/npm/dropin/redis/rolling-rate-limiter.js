// The classes of rolling-rate-limiter, with those that keep their state in Redis.
import memory from "../rolling-rate-limiter.js";
import { Clock, fieldsOf, invalid } from "../input.js";
import { RateLimiter, infoOf, keyOf, logOf } from "../rolling.js";
import { known, limiterOf } from "./counters.js";

/** @import * as declared from "./rolling-rate-limiter.js" */
/** @typedef {import("../rolling-rate-limiter.js").Id} Id */

export * from "../rolling-rate-limiter.js";

/** A limiter in Redis, for all processes. Actions that were blocked count, too. */
class BaseRedisRateLimiter extends RateLimiter {
  /** Remembers each action. */
  #actions;
  /** The same states for questions, which it does not count: the actions' own limiter answers as if it counted them. */
  #questions;
  /** The newest action, as a limit of its own: the results tell both reasons apart. */
  #newest;
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
    const { interval, maxInInterval, minDifference } = this;
    const log = logOf(maxInInterval, interval);
    const counting = { count_denied: true };
    this.#actions = limiterOf("rolling-rate-limiter", client, { ...log, ...counting }, undefined, { on_change: "keep" });
    this.#questions = limiterOf("rolling-rate-limiter", client, log, undefined, { on_change: "keep" });
    // an action that has left the interval is forgotten
    if (minDifference > 0) this.#newest = limiterOf("rolling-rate-limiter-newest", client, { ...logOf(1, Math.min(minDifference, interval)), ...counting });
  }

  /** @type {declared.RedisRateLimiter["makeKey"]} */
  makeKey(id) {
    return `${this.namespace}${id}`;
  }

  /** @type {declared.RedisRateLimiter["limitWithInfo"]} */
  async limitWithInfo(id) {
    const key = this.#key(id);
    const now = this.#clock.now();
    const [found, newest] = await Promise.all([this.#actions.check(key, { now }), this.#newest?.check(key, { now })]);
    const { allowed, remaining, retryAfterUs } = known(found);
    const isApart = newest === undefined || known(newest).allowed;
    const isFull = allowed && remaining === 0;
    const waitUs = isFull ? known(await this.#questions.peek(key, { cost: 1, now })).retryAfterUs : retryAfterUs;
    return infoOf(this, allowed, isApart, waitUs, remaining);
  }

  /** @type {declared.RedisRateLimiter["wouldLimitWithInfo"]} */
  async wouldLimitWithInfo(id) {
    const key = this.#key(id);
    const now = this.#clock.now();
    const { maxInInterval } = this;
    const [one, two, newest] = await Promise.all([
      this.#questions.peek(key, { cost: 1, now }),
      // after this action there is room for another one when there is now room for two
      this.#questions.peek(key, { cost: Math.min(2, maxInInterval), now }),
      this.#newest?.peek(key, { cost: 1, now }),
    ]);
    const { allowed, remaining } = known(one);
    const isApart = newest === undefined || known(newest).allowed;
    return infoOf(this, allowed, isApart, maxInInterval === 1 ? this.interval : known(two).retryAfterUs, remaining);
  }

  /** @type {declared.RedisRateLimiter["clear"]} */
  async clear(id) {
    const key = this.#key(id);
    const now = this.#clock.now();
    const cleared = await Promise.all([this.#actions.reset(key, { now }), this.#newest?.reset(key, { now })]);
    for (const answer of cleared) if (answer !== undefined) known(answer);
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
