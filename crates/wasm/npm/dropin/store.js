// A store for express-rate-limit over counters, in memory or in Redis.
import { LimiterError } from "tidegate";
import { failure, fieldsOf, invalid, keyText, requireNumber } from "./input.js";

/** @import * as declared from "./express-rate-limit.js" */
/** @import { KeyedCounters } from "./counters.js" */

export class CountingStore {
  prefix;
  /** @type {any} a number, once `init` has told it */
  windowMs;
  #countersOf;

  /** @param {unknown} prefix @param {() => KeyedCounters | undefined} countersOf `undefined` before `init`, if they need the window */
  constructor(prefix, countersOf) {
    if (typeof prefix !== "string") throw invalid("prefix", "a string", prefix);
    this.prefix = prefix;
    this.#countersOf = countersOf;
  }

  /** @type {declared.CountingStore["init"]} */
  init(options) {
    const { windowMs } = fieldsOf(options, ["windowMs"]);
    const number = typeof windowMs === "string" && windowMs.trim() !== "" ? Number(windowMs) : windowMs;
    if (!(Number.isFinite(number) && number >= 1)) throw invalid("windowMs", "a finite number of at least 1", windowMs);
    this.windowMs = number;
  }

  /** @type {declared.CountingStore["get"]} */
  async get(key) {
    const counter = await this.#counters().get(this.#text(key));
    return counter && hits(counter);
  }

  /** @type {declared.CountingStore["increment"]} */
  async increment(key) {
    return hits(await this.#counters().add(this.#text(key), 1, this.#window()));
  }

  /** @type {declared.CountingStore["decrement"]} */
  async decrement(key) {
    await this.#counters().giveBack(this.#text(key));
  }

  /** @type {declared.CountingStore["resetKey"]} */
  async resetKey(key) {
    await this.#counters().delete(this.#text(key));
  }

  #counters() {
    return this.#countersOf() ?? notInitialized();
  }

  /** @type {(key: unknown) => string} */
  #text(key) {
    return keyText(typeof key === "string" ? this.prefix + key : key);
  }

  /** Whole milliseconds, as a `Date` has them. */
  #window() {
    if (this.windowMs === undefined) notInitialized();
    return Math.floor(requireNumber("windowMs", this.windowMs));
  }
}

const NOT_INITIALIZED =
  "the store is not initialized: expected `init({ windowMs })` before `increment`, found no call of it; `rateLimit({ store })` makes it";

/** @type {() => never} */
function notInitialized() {
  throw failure(LimiterError, "NOT_INITIALIZED", NOT_INITIALIZED);
}

/** @type {(options: any, names: string[]) => Record<string, any>} */
export function knownOptions(options, names) {
  if (typeof options !== "object" || options === null) throw invalid("options", "an object", options);
  const unknown = Object.keys(options).find((name) => !names.includes(name));
  if (unknown !== undefined) throw invalid("options", names.map((name) => `\`${name}\``).join(" or "), unknown);
  return fieldsOf(options, names);
}

/** @type {(counter: import("./counters.js").Counter) => declared.ClientRateLimitInfo} */
function hits(counter) {
  return { totalHits: counter.value, resetTime: new Date(counter.endsMs) };
}
