// Requests that wait until they are granted, in the order in which they came.
import { coded } from "./errors.js";
import { clock } from "./input.js";

/** @import { Answer, Grant, Signal, WaitOptions } from "./index.js" */
/** @typedef {(now: number) => Grant} Ask asks at a time in microseconds */
/**
 * @typedef {object} Waiter
 * @property {string} key
 * @property {Ask} ask
 * @property {(said: Grant) => void} resolve
 * @property {(error: unknown) => void} reject
 * @property {number} jitter
 * @property {Signal | undefined} signal
 */
/** @typedef {{ waiters: Set<Waiter>, abort: () => void }} Listening */
/**
 * @typedef {object} Queue
 * @property {Set<Waiter>} waiters
 * @property {ReturnType<typeof setTimeout> | undefined} timer
 * @property {number} dueUs when the first request passes
 * @property {number} waitUs how long it waits until then
 */

const LONGEST_TIMER_MS = 2 ** 31 - 1;
/** A timer that is later than this has lost its turn. */
const LATE_US = 100_000;

/** The requests that wait, by key. Only the first one of a key has a timer. */
export class Waiting {
  /** @type {Map<string, Queue>} */
  #queues = new Map();
  /**
   * The requests that a signal ends, and the one listener that all of them share.
   *
   * @type {Map<Signal, Listening>}
   */
  #signals = new Map();
  #most;
  #count = 0;

  /** @param {number} most */
  constructor(most) {
    this.#most = most;
  }

  /**
   * Waits until `ask` returns a grant. `ask` is called when it is this request's turn, and again each time that the
   * wait of its refusal has passed. Until then `look` says whether the request can ever pass.
   *
   * @type {(key: string, ask: Ask, look: () => Answer, options: Pick<WaitOptions, "signal" | "jitter">) => Promise<Grant>}
   */
  wait(key, ask, look, { signal, jitter = 0.1 }) {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) throw signal.reason;
      const first = this.#queues.has(key) ? undefined : ask(clock());
      if (first?.allowed) {
        resolve(first);
        return;
      }
      requireSomeTime(first ?? look());
      if (this.#count >= this.#most) {
        throw coded("TOO_MANY_WAITERS", `expected at most ${this.#most} waiting requests, found one more`);
      }
      const waiter = { key, ask, resolve, reject, jitter, signal };
      if (signal !== undefined) this.#listen(signal, waiter);
      this.#count++;
      const queue = this.#queues.get(key);
      if (queue !== undefined) {
        queue.waiters.add(waiter);
        return;
      }
      const started = { waiters: new Set([waiter]), timer: undefined, dueUs: 0, waitUs: 0 };
      this.#queues.set(key, started);
      this.#serveLater(key, started, waiter, /** @type {Grant} */ (first)); // without a queue it has asked
    });
  }

  /**
   * Asks again at once for the first request on a key, because units may have come back.
   *
   * @type {(key: string) => void}
   */
  wake(key) {
    const queue = this.#queues.get(key);
    if (queue !== undefined) this.#serve(key, queue, clock());
  }

  wakeAll() {
    for (const key of [...this.#queues.keys()]) this.wake(key);
  }

  /**
   * Rejects all requests.
   *
   * @type {(error: unknown) => void}
   */
  close(error) {
    for (const [key, queue] of [...this.#queues]) {
      clearTimeout(queue.timer);
      for (const waiter of [...queue.waiters]) this.#leave(key, queue, waiter).reject(error);
    }
  }

  get size() {
    return this.#count;
  }

  /** @type {(key: string, queue: Queue, now: number) => void} */
  #serve(key, queue, now) {
    clearTimeout(queue.timer);
    for (const waiter of queue.waiters) {
      let said;
      try {
        said = waiter.ask(now);
        if (!said.allowed) {
          requireSomeTime(said);
          this.#serveLater(key, queue, waiter, said);
          return;
        }
      } catch (error) {
        this.#leave(key, queue, waiter).reject(error);
        continue;
      }
      this.#leave(key, queue, waiter).resolve(said);
    }
  }

  /**
   * Sets the timer, a little late, so that processes which share an upstream do not come at the same moment.
   *
   * @type {(key: string, queue: Queue, waiter: Waiter, said: Grant) => void}
   */
  #serveLater(key, queue, { jitter }, { atUs, retryAfterUs }) {
    queue.dueUs = atUs + retryAfterUs;
    queue.waitUs = retryAfterUs;
    const wait = Math.max(1, (queue.dueUs - clock()) / 1000);
    const late = Math.floor(wait * jitter * Math.random());
    queue.timer = setTimeout(() => this.#serve(key, queue, this.#turnOf(queue)), Math.min(Math.ceil(wait) + late, LONGEST_TIMER_MS));
  }

  /**
   * The time at which the first request asks: when it was due if its timer is a little late. Otherwise a bucket of one token, which
   * holds nothing back for the next request, would lose all that timers are late.
   *
   * @type {(queue: Queue) => number}
   */
  #turnOf({ dueUs, waitUs }) {
    const now = clock();
    const lateUs = now - dueUs;
    return lateUs >= 0 && lateUs < Math.min(waitUs, LATE_US) ? dueUs : now;
  }

  /**
   * Many listeners of one signal would look like a leak, of which Node warns.
   *
   * @type {(signal: Signal, waiter: Waiter) => void}
   */
  #listen(signal, waiter) {
    let listening = this.#signals.get(signal);
    if (listening === undefined) {
      listening = { waiters: new Set(), abort: () => this.#abort(signal) };
      signal.addEventListener("abort", listening.abort);
      this.#signals.set(signal, listening);
    }
    listening.waiters.add(waiter);
  }

  /** @type {(signal: Signal, waiter: Waiter) => void} */
  #unlisten(signal, waiter) {
    const listening = /** @type {Listening} */ (this.#signals.get(signal));
    listening.waiters.delete(waiter);
    if (listening.waiters.size > 0) return;
    this.#signals.delete(signal);
    try {
      signal.removeEventListener("abort", listening.abort);
    } catch {
      // a listener that stays does nothing, and the other requests must go on
    }
  }

  /**
   * All requests of the signal leave before others take their turn.
   *
   * @type {(signal: Signal) => void}
   */
  #abort(signal) {
    const next = new Set();
    for (const waiter of [...(this.#signals.get(signal)?.waiters ?? [])]) {
      const queue = /** @type {Queue} */ (this.#queues.get(waiter.key));
      const [first] = queue.waiters;
      if (waiter === first) next.add(waiter.key); // the next one may need less
      this.#leave(waiter.key, queue, waiter).reject(signal.reason);
    }
    for (const key of next) this.wake(key);
  }

  /** @type {(key: string, queue: Queue, waiter: Waiter) => Waiter} */
  #leave(key, queue, waiter) {
    if (waiter.signal !== undefined) this.#unlisten(waiter.signal, waiter);
    this.#count--;
    queue.waiters.delete(waiter);
    if (queue.waiters.size === 0) {
      clearTimeout(queue.timer);
      this.#queues.delete(key);
    }
    return waiter;
  }
}

/**
 * Refuses to wait where no wait helps.
 *
 * @type {(said: Answer) => void}
 */
function requireSomeTime(said) {
  if (!said.denied) return;
  throw coded("NEVER_GRANTED", "expected a key whose requests can pass, found one on the list `deny`");
}
