// What is known of stores that do not answer. While a store is silent, `on_error` decides at once, and one question at a time asks
// whether the store is back. There are no timers, because those of a Worker end with their request: calls look whether it is time to ask.

/** @typedef {() => Promise<unknown>} Ask resolves if the store has answered */
/** @typedef {{ ask: Ask | undefined, dueMs: number }} Silent when the store is asked again, by a clock that never goes back */

/** How soon a store is asked again after a question has failed. */
const AGAIN_MS = 250;
/** So long after a question is due, no call has come, and nobody knows whether the store is still silent: the next call is sent to it. */
const FORGOTTEN_MS = 10_000;
/** The most stores that are known to be silent. Each key may have a Durable Object of its own. */
const MOST = 1_024;

export class Silence {
  #lostMs;
  /** @type {Map<unknown, Silent>} */
  #stores = new Map();

  /** @param {number} lostMs after how long a question without an answer is asked again */
  constructor(lostMs) {
    this.#lostMs = lostMs;
  }

  /**
   * Whether a store is known to be silent, so that a call must not be sent to it. Asks the store again if it is time.
   *
   * @param {unknown} [store]
   */
  has(store) {
    const silent = this.#stores.get(store);
    if (silent === undefined) return false;
    const now = performance.now();
    if (now <= silent.dueMs) return true;
    const isForgotten = now > silent.dueMs + FORGOTTEN_MS;
    silent.dueMs = now + this.#lostMs;
    if (silent.ask === undefined || isForgotten) return false; // the call itself asks
    this.#ask(store, silent, silent.ask);
    return true;
  }

  /**
   * Takes note of a call that was not answered in time. Without `ask` the calls themselves are the questions, one at a time.
   *
   * @type {(store: unknown, ask: Ask | undefined) => void}
   */
  begin(store, ask) {
    if (ask !== undefined && this.#stores.has(store)) return;
    const silent = { ask, dueMs: performance.now() + (ask === undefined ? AGAIN_MS : this.#lostMs) };
    if (this.#stores.size >= MOST) this.#stores.delete(this.#stores.keys().next().value);
    this.#stores.set(store, silent);
    if (ask !== undefined) this.#ask(store, silent, ask);
  }

  /**
   * Takes note of an answer.
   *
   * @param {unknown} [store]
   */
  end(store) {
    this.#stores.delete(store);
  }

  /** @type {(store: unknown, silent: Silent, ask: Ask) => void} */
  #ask(store, silent, ask) {
    ask().then(() => this.end(store), () => {
      silent.dueMs = performance.now() + AGAIN_MS;
    });
  }
}
