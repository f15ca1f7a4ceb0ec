// A store for express-rate-limit.
import { Counters } from "./counters.js";
import { fieldsOf, invalid, keyText, requireNumber } from "./input.js";

/** Counts the hits of each client in windows that begin at its first request. */
export class MemoryStore {
  /** No other store counts the same keys. */
  localKeys = true;
  prefix;
  windowMs;
  #counters;

  constructor(options) {
    const { prefix = "", maxBytes } = fieldsOf(options, ["prefix", "maxBytes"]);
    if (typeof prefix !== "string") throw invalid("prefix", "a string", prefix);
    this.prefix = prefix;
    this.#counters = new Counters(maxBytes);
  }

  init(options) {
    this.windowMs = requireNumber("windowMs", fieldsOf(options, ["windowMs"]).windowMs, 1);
  }

  async get(key) {
    return hits(this.#counters.get(this.#text(key)));
  }

  async increment(key) {
    return hits(this.#counters.add(this.#text(key), 1, this.#window()));
  }

  async decrement(key) {
    const text = this.#text(key);
    if (this.#counters.get(text)?.value > 0) this.#counters.add(text, -1, this.#window());
  }

  async resetKey(key) {
    this.#counters.delete(this.#text(key));
  }

  async resetAll() {
    this.#counters.clear();
  }

  shutdown() {
    this.#counters.clear();
  }

  #text(key) {
    return keyText(typeof key === "string" ? this.prefix + key : key);
  }

  /** Whole milliseconds, as a `Date` has them. */
  #window() {
    return Math.floor(requireNumber("windowMs", this.windowMs));
  }
}

export default MemoryStore;

function hits(counter) {
  return counter && { totalHits: counter.value, resetTime: new Date(counter.endsMs) };
}
