// Requests that wait for their turn.
import { fieldsOf, LONGEST_TIMER_MS, requireNumber } from "../input.js";
import { requireLimiter } from "./abstract.js";

/** @import * as declared from "../rate-limiter-flexible.js" */
/** @typedef {{ resolve: (remaining: number) => void, reject: (error: unknown) => void, tokens: number, expiresUnixAt: number }} Waiter */
/** @typedef {{ remaining: number, waitMs?: undefined } | { remaining?: undefined, waitMs: number }} Asked */

const MOST_WAITING = 2 ** 32 - 1;
/** The time between two questions about a key whose points never come back by themselves. */
const ENDLESS_MS = 1000;

export class RateLimiterQueueError extends Error {
  /** @param {string} [message] @param {string} [extra] */
  constructor(message, extra) {
    super(message);
    this.name = "CustomError"; // as theirs
    if (extra) {
      /** @type {string} absent without a text, which the declaration does not say, as theirs does not */
      this.extra = extra;
    }
  }
}

/** Lets requests wait until their tokens are there, in the order of their calls. */
export class RateLimiterQueue {
  #limiter;
  #maxQueueSize;
  /** The queues that somebody uses. */
  #queues = new Map();

  /** @param {declared.RateLimiterLike | declared.BurstyRateLimiter} limiter @param {declared.IRateLimiterQueueOpts} [options] */
  constructor(limiter, options) {
    const { maxQueueSize = MOST_WAITING } = fieldsOf(options, ["maxQueueSize"]);
    this.#limiter = requireLimiter("limiterFlexible", limiter);
    this.#maxQueueSize = maxQueueSize === Infinity ? maxQueueSize : requireNumber("maxQueueSize", maxQueueSize, 0);
  }

  /** @type {declared.RateLimiterQueue["getTokensRemaining"]} */
  async getTokensRemaining(key = "limiter") {
    const { points } = this.#limiter;
    return this.#limiter.get(key).then((/** @type {declared.RateLimiterRes | null} */ found) => found?.remainingPoints ?? points, () => points);
  }

  /** @type {declared.RateLimiterQueue["removeTokens"]} */
  async removeTokens(tokens, key = "limiter", expiresUnixAt = 0) {
    requireNumber("tokens", tokens);
    const name = String(key);
    const queue = this.#queues.get(name) ?? new Queue(this.#limiter, key, this.#maxQueueSize, () => this.#queues.delete(name));
    this.#queues.set(name, queue);
    return queue.removeTokens(tokens, expiresUnixAt);
  }
}

/** The requests that wait on one key. Only the first of them asks the limiter. */
class Queue {
  #limiter;
  #key;
  #most;
  #onIdle;
  /** @type {Waiter[]} */
  #waiting = [];
  /** The requests that wait or ask. */
  #requests = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;

  /** @param {any} limiter @param {string | number} key @param {number} most @param {() => void} onIdle */
  constructor(limiter, key, most, onIdle) {
    this.#limiter = limiter;
    this.#key = key;
    this.#most = most;
    this.#onIdle = onIdle;
  }

  /** @type {(tokens: number, expiresUnixAt: number) => Promise<number>} */
  async removeTokens(tokens, expiresUnixAt) {
    this.#requests++;
    try {
      if (tokens > this.#limiter.points) {
        throw new RateLimiterQueueError(`Requested tokens ${tokens} exceeds maximum ${this.#limiter.points} tokens per interval`);
      }
      return await (this.#waiting.length > 0 ? this.#wait(tokens, expiresUnixAt) : this.#askOrWait(tokens, expiresUnixAt));
    } finally {
      if (--this.#requests === 0) {
        clearTimeout(this.#timer);
        this.#onIdle();
      }
    }
  }

  /** @type {(tokens: number, expiresUnixAt: number) => Promise<number>} */
  async #askOrWait(tokens, expiresUnixAt) {
    const { remaining, waitMs } = await this.#ask(tokens);
    if (remaining !== undefined) return remaining;
    const waits = this.#wait(tokens, expiresUnixAt);
    this.#askLater(waitMs);
    return waits;
  }

  /** @type {(tokens: number, expiresUnixAt: number) => Promise<number>} */
  #wait(tokens, expiresUnixAt) {
    if (this.#waiting.length >= this.#most) {
      return Promise.reject(new RateLimiterQueueError(`Number of requests reached it's maximum ${this.#most}`));
    }
    return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject, tokens, expiresUnixAt }));
  }

  async #serve() {
    this.#expire();
    for (let first = this.#waiting.shift(); first !== undefined; first = this.#waiting.shift()) {
      try {
        const { remaining, waitMs } = await this.#ask(first.tokens);
        if (remaining === undefined) {
          this.#waiting.unshift(first);
          this.#askLater(waitMs);
          return;
        }
        first.resolve(remaining);
      } catch (error) {
        first.reject(error);
      }
      this.#expire();
    }
  }

  #expire() {
    const seconds = Math.floor(Date.now() / 1000);
    this.#waiting = this.#waiting.filter(({ expiresUnixAt, reject }) => {
      const isOver = expiresUnixAt > 0 && seconds >= expiresUnixAt;
      if (isOver) reject(new RateLimiterQueueError("The request to remove tokens expired before it could be fulfilled"));
      return !isOver;
    });
  }

  /**
   * The remaining tokens if these were there, otherwise how long to wait.
   *
   * @type {(tokens: number) => Promise<Asked>}
   */
  async #ask(tokens) {
    try {
      const { remainingPoints } = await this.#limiter.consume(this.#key, tokens);
      return { remaining: requireNumber("remainingPoints", remainingPoints) }; // a union answers in another way
    } catch (/** @type {any} */ refusal) {
      if (refusal instanceof Error) throw refusal;
      return { waitMs: refusal.msBeforeNext };
    }
  }

  /** @type {(waitMs: number) => void} */
  #askLater(waitMs) {
    if (this.#timer !== undefined || this.#waiting.length === 0) return;
    const wait = waitMs < 0 ? ENDLESS_MS : Math.min(waitMs, LONGEST_TIMER_MS);
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#serve();
    }, wait);
  }
}
