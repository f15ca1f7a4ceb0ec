// A store for express-rate-limit.
import { LimiterError } from "tidegate";
import { Counters } from "./counters.js";
import { fieldsOf, invalid, keyText, requireNumber } from "./input.js";

const OPTIONS = ["prefix", "maxBytes"];

/** Counts the hits of each client in windows that begin at its first request. */
export class MemoryStore {
  /** No other store counts the same keys. */
  localKeys = true;
  prefix;
  windowMs;
  #counters;

  constructor(options) {
    requireKnown(options);
    const { prefix = "", maxBytes } = fieldsOf(options, OPTIONS);
    if (typeof prefix !== "string") throw invalid("prefix", "a string", prefix);
    this.prefix = prefix;
    this.#counters = new Counters(maxBytes);
  }

  init(options) {
    const { windowMs } = fieldsOf(options, ["windowMs"]);
    const number = typeof windowMs === "string" && windowMs.trim() !== "" ? Number(windowMs) : windowMs;
    if (!(Number.isFinite(number) && number >= 1)) throw invalid("windowMs", "a finite number of at least 1", windowMs);
    this.windowMs = number;
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
    if (this.windowMs === undefined) throw new LimiterError("NOT_INITIALIZED", NOT_INITIALIZED);
    return Math.floor(requireNumber("windowMs", this.windowMs));
  }
}

export default MemoryStore;

const NOT_INITIALIZED =
  "the store is not initialized: expected `init({ windowMs })` before `increment`, found no call of it; `rateLimit({ store })` makes it";

function requireKnown(options = {}) {
  if (typeof options !== "object" || options === null) throw invalid("options", "an object", options);
  const unknown = Object.keys(options).find((name) => !OPTIONS.includes(name));
  if (unknown !== undefined) throw invalid("options", "`prefix` or `maxBytes`", unknown);
}

function hits(counter) {
  return counter && { totalHits: counter.value, resetTime: new Date(counter.endsMs) };
}
