// A store for express-rate-limit in memory.
import { Counters } from "./counters.js";
import { CountingStore, knownOptions } from "./store.js";

/** @import * as declared from "./express-rate-limit.js" */

/**
 * Counts the hits of each client in windows that begin at its first request.
 *
 * @implements {declared.MemoryStore}
 */
export class MemoryStore extends CountingStore {
  /** No other store counts the same keys. */
  localKeys = true;
  #counters;

  /** @param {import("./express-rate-limit.js").MemoryStoreOptions} [options] */
  constructor(options = {}) {
    const { prefix = "", maxBytes } = knownOptions(options, ["prefix", "maxBytes"]);
    const counters = new Counters(maxBytes);
    super(prefix, () => counters);
    this.#counters = counters;
  }

  /** @type {declared.MemoryStore["resetAll"]} */
  async resetAll() {
    this.#counters.clear();
  }

  /** @type {declared.MemoryStore["shutdown"]} */
  shutdown() {
    this.#counters.clear();
  }
}

export default MemoryStore;
