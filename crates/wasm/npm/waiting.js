// Requests that wait until they are granted, in the order in which they came.
import { coded, ownField } from "./errors.js";
import { clock, millisecondsUntil, timer } from "./time.js";

/** @import { Signal, WaitOptions } from "./index.js" */
/** @typedef {{ allowed: boolean, denied?: boolean, atUs?: number, retryAfterUs?: number }} Said an answer, without numbers if nobody could be asked */
/**
 * What asks at a time in microseconds, and what only looks.
 *
 * @template {Said} G
 * @typedef {{ ask: (now: number) => G | Promise<G>, look: () => Said | Promise<Said> }} Asking
 */
/**
 * Lets a request act in its own context until it is settled, and calls `tick` there each second: no request of a Worker can do so for
 * another one, and one that is cancelled never says so. Returns what makes it act.
 *
 * @typedef {(settled: Promise<unknown>, tick: () => void) => (act: () => void) => void} Attend
 */
/**
 * @typedef {object} Waiter
 * @property {string} key
 * @property {Asking<any>} asking
 * @property {(said: any) => void} resolve
 * @property {(error: unknown) => void} reject
 * @property {number} jitter
 * @property {Signal | undefined} signal
 * @property {boolean} isCounted whether it was refused, or has looked
 * @property {boolean} isAsking whether the answer to its question is still to come
 * @property {ReturnType<Attend> | undefined} act
 * @property {number} seenUs when it last ticked
 */
/** @typedef {{ waiters: Set<Waiter>, abort: () => void }} Listening */
/**
 * @typedef {object} Queue
 * @property {Set<Waiter>} waiters
 * @property {ReturnType<typeof setTimeout> | undefined} timer
 * @property {number} dueUs when the first request passes
 * @property {number} waitUs how long it waits until then
 * @property {boolean} isWoken whether units may have come back since it asked
 */

/** A timer that is later than this has lost its turn. */
const LATE_US = 100_000;
/** How long the first request waits until it asks again, if nobody could be asked. */
const UNKNOWN_WAIT_US = 1_000_000;
/** A limiter whose units others may give back asks again after this. */
export const LOOK_AGAIN_US = 1_000_000;
/** A request that has not ticked for so long was cancelled. */
const GONE_US = 3_000_000;

/**
 * The requests that wait, by key. Only the first one of a key has a timer.
 *
 * Answers may be promises. A request whose answer is under way is not ended before the answer has come, so that no grant is lost.
 */
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
  #lookAgainUs;
  #attend;
  #count = 0;
  /** @type {unknown} */
  #closed;

  /**
   * @param {number} most
   * @param {number} [lookAgainUs] how long the first request waits at most until it asks again, because others may give units back
   * @param {Attend} [attend]
   */
  constructor(most, lookAgainUs = Infinity, attend = undefined) {
    this.#most = most;
    this.#lookAgainUs = lookAgainUs;
    this.#attend = attend;
  }

  /**
   * Waits until `ask` returns a grant. `ask` is called when it is this request's turn, and again each time that the
   * wait of its refusal has passed. Until then `look` says whether the request can ever pass.
   *
   * @template {Said} G
   * @param {string} key
   * @param {Asking<G>} asking
   * @param {Pick<WaitOptions, "signal" | "jitter">} options
   * @returns {Promise<G>}
   */
  wait(key, asking, { signal, jitter = 0.1 }) {
    /** @type {Waiter | undefined} */
    let waiter;
    const settled = new Promise((resolve, reject) => {
      if (signal?.aborted) throw signal.reason;
      const seenUs = this.#attend === undefined ? Infinity : clock();
      waiter = { key, asking, resolve, reject, jitter, signal, isCounted: false, isAsking: false, act: undefined, seenUs };
      this.#join(waiter);
    });
    if (waiter !== undefined) waiter.act = this.#attend?.(settled, () => this.#tick(/** @type {Waiter} */ (waiter)));
    return settled;
  }

  /** @type {(waiter: Waiter) => void} */
  #join(waiter) {
    this.#dropGone(this.#queues.get(waiter.key));
    const queue = this.#queues.get(waiter.key);
    if (queue === undefined) return this.#begin(waiter);
    const looked = waiter.asking.look();
    if (!(looked instanceof Promise)) this.#stay(waiter, looked);
    this.#enqueue(queue, waiter);
    if (looked instanceof Promise) void this.#stayOnceKnown(queue, waiter, looked);
  }

  /**
   * Takes note that the caller of a request is still there, and lets the next request ask if that of the first one is not.
   *
   * @type {(waiter: Waiter) => void}
   */
  #tick(waiter) {
    const { key, seenUs } = waiter;
    waiter.seenUs = clock();
    const queue = this.#queues.get(key);
    if (!queue?.waiters.has(waiter)) return this.#rejoin(waiter);
    if (waiter.seenUs - seenUs > GONE_US / 2) return; // the isolate stood still, and with it the other requests
    const [first] = queue.waiters;
    this.#dropGone(queue);
    if (!queue.waiters.has(first)) this.#next(key, queue);
  }

  /**
   * Lets a request wait that was taken for gone.
   *
   * @type {(waiter: Waiter) => void}
   */
  #rejoin(waiter) {
    if (waiter.isAsking) return; // until its answer has come
    try {
      this.#join(waiter);
    } catch (error) {
      waiter.reject(error);
    }
  }

  /**
   * Lets the first requests leave that are gone.
   *
   * @type {(queue: Queue | undefined) => void}
   */
  #dropGone(queue) {
    const gone = clock() - GONE_US;
    for (const waiter of queue?.waiters ?? []) {
      if (waiter.seenUs >= gone) return;
      this.#leave(waiter.key, /** @type {Queue} */ (queue), waiter);
    }
  }

  /**
   * The first request of a key asks at once. Those that come before it has its answer stand behind it, and send nothing.
   *
   * @type {(waiter: Waiter) => void}
   */
  #begin(waiter) {
    const queue = { waiters: new Set(), timer: undefined, dueUs: 0, waitUs: 0, isWoken: false };
    this.#enqueue(queue, waiter);
    this.#queues.set(waiter.key, queue);
    this.#serve(waiter.key, queue, clock());
  }

  /** @type {(queue: Queue, waiter: Waiter) => void} */
  #enqueue(queue, waiter) {
    if (waiter.signal !== undefined) this.#listen(waiter.signal, waiter);
    queue.waiters.add(waiter);
  }

  /**
   * Lets a request wait that was refused, or that has only looked.
   *
   * @type {(waiter: Waiter, said: Said) => void}
   */
  #stay(waiter, said) {
    this.#requireWait(waiter, said);
    if (waiter.isCounted) return;
    if (this.#count >= this.#most) for (const queue of [...this.#queues.values()]) this.#dropGone(queue);
    if (this.#count >= this.#most) {
      throw coded("TOO_MANY_WAITERS", `expected at most ${this.#most} waiting requests, found one more`);
    }
    this.#count++;
    waiter.isCounted = true;
  }

  /**
   * Does so once a request has looked, unless it has left, or asks by itself now.
   *
   * @type {(queue: Queue, waiter: Waiter, looked: Promise<Said>) => Promise<void>}
   */
  async #stayOnceKnown(queue, waiter, looked) {
    const [said] = await Promise.allSettled([looked]);
    const [first] = queue.waiters;
    if (!queue.waiters.has(waiter) || waiter.isAsking) return;
    try {
      if (said.status === "rejected") throw said.reason;
      this.#stay(waiter, said.value);
    } catch (error) {
      this.#leave(waiter.key, queue, waiter).reject(error);
      if (waiter === first) this.#wake(waiter.key);
    }
  }

  /**
   * Refuses to wait where no wait helps, or after the wait was ended.
   *
   * @type {(waiter: Waiter, said: Said) => void}
   */
  #requireWait({ signal }, said) {
    if (ownField(said, "denied") && !said.allowed) throw coded("NEVER_GRANTED", "expected a key whose requests can pass, found one on the list `deny`");
    if (this.#closed !== undefined) throw this.#closed;
    if (signal?.aborted) throw signal.reason;
  }

  /**
   * Asks again at once for the first request on a key, because units may have come back. Addresses of one network, and all ways to
   * write an address, are one key.
   *
   * @type {(key: string, sharesStates?: boolean) => void}
   */
  wake(key, sharesStates) {
    if (sharesStates || key.startsWith("ip:")) this.wakeAll();
    else this.#wake(key);
  }

  wakeAll() {
    for (const key of [...this.#queues.keys()]) this.#wake(key);
  }

  /** @param {string} key */
  #wake(key) {
    const queue = this.#queues.get(key);
    if (queue !== undefined) this.#next(key, queue);
  }

  /**
   * Rejects all requests, and those that come later.
   *
   * @type {(error: unknown) => void}
   */
  close(error) {
    this.#closed = error;
    for (const [key, queue] of [...this.#queues]) {
      clearTimeout(queue.timer);
      for (const waiter of [...queue.waiters].filter(({ isAsking }) => !isAsking)) this.#leave(key, queue, waiter).reject(error);
    }
  }

  /** The requests that wait without asking. */
  get size() {
    let asking = 0;
    for (const { waiters: [first] } of this.#queues.values()) if (first.isAsking && first.isCounted) asking++;
    return this.#count - asking;
  }

  /**
   * Lets the first request ask, in its own context if it has one.
   *
   * @type {(key: string, queue: Queue) => void}
   */
  #next(key, queue) {
    const [first] = queue.waiters;
    if (first?.act === undefined) return this.#serve(key, queue, clock());
    first.act(() => {
      if (queue.waiters.values().next().value === first) this.#serve(key, queue, clock());
    });
  }

  /** @type {(key: string, queue: Queue, now: number) => void} */
  #serve(key, queue, now) {
    clearTimeout(queue.timer);
    queue.timer = undefined;
    const [first] = queue.waiters;
    if (first?.isAsking) {
      queue.isWoken = true;
      return;
    }
    for (const waiter of queue.waiters) {
      let said;
      try {
        said = waiter.asking.ask(now);
        if (said instanceof Promise) return void this.#serveOnceKnown(key, queue, waiter, said);
        if (!this.#answer(key, queue, waiter, said)) return;
      } catch (error) {
        this.#leave(key, queue, waiter).reject(error);
      }
    }
  }

  /** @type {(key: string, queue: Queue, waiter: Waiter, asked: Promise<Said>) => Promise<void>} */
  async #serveOnceKnown(key, queue, waiter, asked) {
    waiter.isAsking = true;
    const [heard] = await Promise.allSettled([asked]);
    waiter.isAsking = false;
    const isRefused = heard.status === "fulfilled" && !heard.value.allowed;
    if (isRefused && !queue.waiters.has(waiter)) return this.#rejoin(waiter);
    let isNext = true;
    try {
      if (heard.status === "rejected") throw heard.reason;
      isNext = this.#answer(key, queue, waiter, heard.value);
    } catch (error) {
      this.#leave(key, queue, waiter).reject(error);
    }
    isNext ||= queue.isWoken;
    queue.isWoken = false;
    if (isNext) this.#next(key, queue);
  }

  /**
   * Gives the first request its answer, and returns whether it is the next one's turn.
   *
   * @type {(key: string, queue: Queue, waiter: Waiter, said: Said) => boolean}
   */
  #answer(key, queue, waiter, said) {
    if (said.allowed) {
      this.#leave(key, queue, waiter).resolve(said);
      return true;
    }
    this.#stay(waiter, said);
    this.#serveLater(key, queue, waiter, said);
    return false;
  }

  /**
   * Sets the timer, a little late, so that processes which share an upstream do not come at the same moment.
   *
   * @type {(key: string, queue: Queue, waiter: Waiter, said: Said) => void}
   */
  #serveLater(key, queue, { jitter }, { atUs = clock(), retryAfterUs = UNKNOWN_WAIT_US }) {
    queue.waitUs = Math.min(retryAfterUs, this.#lookAgainUs);
    queue.dueUs = atUs + queue.waitUs;
    const waitMs = Math.max(1, millisecondsUntil(clock(), queue.dueUs));
    const lateMs = Math.floor(waitMs * jitter * Math.random());
    const own = timer(() => {
      if (queue.timer === own) this.#serve(key, queue, this.#turnOf(queue)); // a Worker does not end a timer of another request
    }, waitMs + lateMs);
    queue.timer = own;
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
      if (waiter.isAsking) continue; // it leaves once its answer has come
      if (waiter === first) next.add(waiter.key); // the next one may need less
      this.#leave(waiter.key, queue, waiter).reject(signal.reason);
    }
    for (const key of next) this.#wake(key);
  }

  /** @type {(key: string, queue: Queue, waiter: Waiter) => Waiter} */
  #leave(key, queue, waiter) {
    if (!queue.waiters.delete(waiter)) return waiter; // it was taken for gone
    if (waiter.signal !== undefined) this.#unlisten(waiter.signal, waiter);
    if (waiter.isCounted) this.#count--;
    waiter.isCounted = false;
    if (queue.waiters.size === 0) {
      clearTimeout(queue.timer);
      this.#queues.delete(key);
    }
    return waiter;
  }
}
