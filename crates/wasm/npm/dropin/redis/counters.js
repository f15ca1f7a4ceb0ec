// Counters in Redis, which all processes share. Each call is one operation of the core, or several that begin together and so are one
// transaction. A process therefore never decides on a count that another one has changed meanwhile.
//
// A counter is a fixed window whose limit is the largest number, so that each request counts. All windows of one object last for
// the same span: a shorter one is begun in the past. Nothing counts below zero.
import { ArgumentError, LimiterError, RedisLimiter } from "tidegate/redis";
import { Clock, failure, invalid, requireWhole } from "../input.js";

/** @import { Counter, KeyedCounters } from "../counters.js" */
/** @import { Answer, Decision } from "tidegate/redis" */
/** @typedef {{ allowed: boolean, remaining: number, retryAfterUs: number, resetAfterUs: number }} Numbers */

const MOST_COUNT = Number.MAX_SAFE_INTEGER;
const MOST_UNITS = 2 ** 50;
/** 35 years. A counter that never ends lasts for this span. */
const ENDLESS_US = 2 ** 50;

/** @implements {KeyedCounters} */
export class RedisCounters {
  #limiter;
  #spanUs;
  #isAligned;
  #clock;

  /**
   * @param {string} name what the policy is called in Redis
   * @param {any} client
   * @param {number} spanMs how long a counter lasts; `Infinity` for one that never ends
   * @param {{ start?: "first" | "aligned", deadline?: string, clock?: Clock }} [options]
   */
  constructor(name, client, spanMs, { start = "first", deadline, clock = new Clock() } = {}) {
    this.#clock = clock;
    this.#spanUs = microseconds(spanMs);
    this.#isAligned = start === "aligned";
    this.#limiter = limiterOf(name, client, { algorithm: "fixed_window", limit: MOST_COUNT, period: `${this.#spanUs}us`, start }, deadline);
  }

  /** @type {(key: string, nowUs?: number) => Promise<Counter | undefined>} */
  async get(key, nowUs = this.#clock.now()) {
    const found = known(await this.#limiter.peek(key, { cost: 0, now: nowUs }));
    return isBlocked(found) || found.resetAfterUs > 0 ? this.#counter(found, nowUs, 0) : undefined;
  }

  /** @type {(key: string, units: number) => number} */
  whole(_key, units) {
    return requireWhole("points", units, -MOST_UNITS, MOST_UNITS);
  }

  /**
   * Adds units, which may be negative, in one operation. If the key has no counter, one begins.
   *
   * @type {(key: string, units: number, spanMs: number, nowUs?: number) => Promise<Counter>}
   */
  async add(key, units, spanMs, nowUs = this.#clock.now()) {
    if (!this.#isAligned && microseconds(spanMs) !== this.#spanUs) {
      throw invalid("customDuration", `the seconds of the limiter, ${this.#spanUs / 1_000_000}: all its windows in Redis are of one length`, spanMs / 1000);
    }
    /** @type {Promise<Answer | Decision>} */
    const asked = units < 0 ? this.#limiter.refund(key, -units, { now: nowUs }) : this.#limiter.check(key, { cost: units, now: nowUs });
    return this.#counter(known(await asked), nowUs, units);
  }

  /** @type {(key: string) => Promise<void>} */
  async giveBack(key) {
    known(await this.#limiter.refund(key, 1, { now: this.#clock.now() }));
  }

  /** @type {(key: string, units: number, spanMs: number, nowUs?: number) => Promise<Counter>} */
  async put(key, units, spanMs, nowUs = this.#clock.now()) {
    requireWhole("points", units, 0, MOST_UNITS);
    const beginUs = nowUs + microseconds(spanMs) - this.#spanUs;
    if (beginUs > nowUs) throw invalid("secDuration", `at most ${this.#spanUs / 1_000_000}, the seconds of the limiter's windows in Redis`, spanMs / 1000);
    // one unit more is taken and given back: it begins the counter if no unit is put, and then moves the counter's clock to now
    const answers = await this.#together([
      this.#limiter.reset(key, { now: nowUs }), this.#limiter.check(key, { cost: units + 1, now: beginUs }),
      this.#limiter.refund(key, 1, { now: nowUs }),
    ]);
    return this.#counter(answers[2], nowUs);
  }

  /**
   * Blocks a key in place of counting it. A block may last longer than a counter.
   *
   * @type {(key: string, units: number, spanMs: number) => Promise<Counter>}
   */
  async block(key, units, spanMs) {
    const now = this.#clock.now();
    const options = { now };
    await this.#together([this.#limiter.reset(key, options), this.#limiter.block(key, `${microseconds(spanMs)}us`, options)]);
    return { value: units, leftMs: spanMs, endsMs: (now - this.#clock.aheadUs) / 1000 + spanMs, isFirst: false, isBlocked: true };
  }

  /** @type {(key: string, nowUs?: number) => Promise<boolean>} */
  async delete(key, nowUs = this.#clock.now()) {
    const [found] = await Promise.all([this.get(key, nowUs), this.#limiter.reset(key, { now: nowUs })]);
    return found !== undefined;
  }

  /** @type {(error: unknown) => boolean} */
  isFailure(error) {
    return error instanceof LimiterError && !(error instanceof ArgumentError);
  }

  /**
   * The answers to operations that have begun together.
   *
   * @type {(asked: Promise<Answer | Decision>[]) => Promise<Numbers[]>}
   */
  async #together(asked) {
    return (await Promise.all(asked)).map(known);
  }

  /** @type {(numbers: Numbers, nowUs: number, units?: number) => Counter} */
  #counter(numbers, nowUs, units) {
    const blocked = isBlocked(numbers);
    const value = MOST_COUNT - numbers.remaining;
    const leftUs = (blocked ? numbers.retryAfterUs : numbers.resetAfterUs) || numbers.resetAfterUs || this.#spanUs;
    return {
      value, leftMs: leftUs > ENDLESS_US / 2 ? Infinity : leftUs / 1000, endsMs: (nowUs + leftUs - this.#clock.aheadUs) / 1000,
      isFirst: value === units, isBlocked: blocked,
    };
  }
}

/**
 * A limiter on Redis of one limit, or of several. Its deadline is by default that of every limiter on Redis.
 *
 * @type {(name: string, client: any, limits: import("tidegate").Limit | import("tidegate").Limit[], deadline?: string, policy?: object) => RedisLimiter}
 */
export function limiterOf(name, client, limits, deadline, policy = {}) {
  return new RedisLimiter({ policies: { [name]: { limits: [limits].flat(), on_change: "reset", ...policy } } }, client, deadline === undefined ? {} : { deadline });
}

/**
 * Refuses what is no client of Redis, and names the option in which the class takes it. Only a limiter knows the clients.
 *
 * @type {(option: string, client: unknown) => void}
 */
export function requireClient(option, client) {
  try {
    void limiterOf("client", client, { algorithm: "fixed_window", limit: 1, period: "1s" }).close();
  } catch (error) {
    if (!(error instanceof ArgumentError)) throw error;
    throw failure(ArgumentError, error.code, error.message.replace("`client`", `\`${option}\``));
  }
}

/**
 * The decision of Redis. A degraded answer is an error, so that nothing is granted by it.
 *
 * @template {Decision | Answer} Said
 * @param {Said} answer
 * @returns {Exclude<Said, { degraded: string }>}
 */
export function known(answer) {
  if (Object.hasOwn(answer, "degraded")) throw failure(LimiterError, "UNAVAILABLE", /** @type {any} */ (answer).degraded);
  return /** @type {any} */ (answer);
}

/**
 * A counter's limit refuses nothing, and always has units left.
 *
 * @type {(numbers: Numbers) => boolean}
 */
const isBlocked = ({ allowed, remaining }) => !allowed || remaining === 0;

/** @type {(spanMs: number) => number} */
const microseconds = (spanMs) => (spanMs === Infinity ? ENDLESS_US : Math.max(1, Math.round(spanMs * 1000)));
