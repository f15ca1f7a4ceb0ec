// A store for express-rate-limit.
import { LimiterError } from "tidegate";
import { Counters } from "./counters.js";
import { failure, fieldsOf, invalid, keyText, requireNumber } from "./input.js";

/** @import * as declared from "./express-rate-limit.js" */

const OPTIONS = ["prefix", "maxBytes"];

/**
 * Counts the hits of each client in windows that begin at its first request.
 *
 * @implements {declared.MemoryStore}
 */
export class MemoryStore {
  /** No other store counts the same keys. */
  localKeys = true;
  prefix;
  /** @type {any} a number, once `init` has told it */
  windowMs;
  #counters;

  /** @param {import("./express-rate-limit.js").MemoryStoreOptions} [options] */
  constructor(options) {
    requireKnown(options);
    const { prefix = "", maxBytes } = fieldsOf(options, OPTIONS);
    if (typeof prefix !== "string") throw invalid("prefix", "a string", prefix);
    this.prefix = prefix;
    this.#counters = new Counters(maxBytes);
  }

  /** @type {declared.MemoryStore["init"]} */
  init(options) {
    const { windowMs } = fieldsOf(options, ["windowMs"]);
    const number = typeof windowMs === "string" && windowMs.trim() !== "" ? Number(windowMs) : windowMs;
    if (!(Number.isFinite(number) && number >= 1)) throw invalid("windowMs", "a finite number of at least 1", windowMs);
    this.windowMs = number;
  }

  /** @type {declared.MemoryStore["get"]} */
  async get(key) {
    const counter = this.#counters.get(this.#text(key));
    return counter && hits(counter);
  }

  /** @type {declared.MemoryStore["increment"]} */
  async increment(key) {
    return hits(this.#counters.add(this.#text(key), 1, this.#window()));
  }

  /** @type {declared.MemoryStore["decrement"]} */
  async decrement(key) {
    const text = this.#text(key);
    const counter = this.#counters.get(text);
    if (counter !== undefined && counter.value > 0) this.#counters.add(text, -1, this.#window());
  }

  /** @type {declared.MemoryStore["resetKey"]} */
  async resetKey(key) {
    this.#counters.delete(this.#text(key));
  }

  /** @type {declared.MemoryStore["resetAll"]} */
  async resetAll() {
    this.#counters.clear();
  }

  /** @type {declared.MemoryStore["shutdown"]} */
  shutdown() {
    this.#counters.clear();
  }

  /** @type {(key: unknown) => string} */
  #text(key) {
    return keyText(typeof key === "string" ? this.prefix + key : key);
  }

  /** Whole milliseconds, as a `Date` has them. */
  #window() {
    if (this.windowMs === undefined) throw failure(LimiterError, "NOT_INITIALIZED", NOT_INITIALIZED);
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

/** @type {(counter: import("./counters.js").Counter) => declared.ClientRateLimitInfo} */
function hits(counter) {
  return { totalHits: counter.value, resetTime: new Date(counter.endsMs) };
}
