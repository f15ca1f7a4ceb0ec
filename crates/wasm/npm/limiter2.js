// What JavaScript alone can do: types, the clock, the seed. Whatever decides is in WebAssembly.
import { Limiter as Native, moduleMemory } from "./dist/tidegate.js";
import { coded, policyText, readOptions, wrongType } from "./input.js";

const utf8 = new TextEncoder();

export class Limiter {
  #native;
  #defaultCost;
  // Views of the module's memory; growing it detaches them.
  #key = new Uint8Array();
  #decision = new Float64Array();

  constructor(policy, options = {}) {
    const { name, maxKeys } = readOptions(options);
    const [seedHigh, seedLow] = crypto.getRandomValues(new Uint32Array(2));
    this.#native = new Native(policyText(policy), name, maxKeys, seedHigh, seedLow);
    this.#defaultCost = this.#native.defaultCost();
  }

  check(key, cost = this.#defaultCost, now = clock()) {
    if (typeof cost !== "number") throw wrongType("cost", "INVALID_COST", cost, "a number");
    return this.#decide(key, cost, now);
  }

  peek(key, now = clock()) {
    return this.#decide(key, 0, now);
  }

  sweep(now = clock()) {
    if (typeof now !== "number") throw wrongType("now", "INVALID_NOW", now, "a number");
    this.#living().sweep(now);
  }

  get size() {
    return this.#living().size();
  }

  free() {
    this.#native?.free();
    this.#native = undefined;
  }

  [Symbol.dispose]() {
    this.free();
  }

  #decide(key, cost, now) {
    if (typeof key !== "string") throw wrongType("key", "INVALID_KEY", key, "a string");
    if (typeof now !== "number") throw wrongType("now", "INVALID_NOW", now, "a number");
    const native = this.#living();
    const allowed = native.check(this.#writeKey(key), cost, now);
    if (allowed === undefined) throw native.failure();
    if (this.#decision.length === 0) this.#view();
    const numbers = this.#decision;
    return ({
      allowed,
      limit: numbers[0],
      remaining: numbers[1],
      retryAfterUs: numbers[2],
      resetAfterUs: numbers[3],
    });
  }

  #living() {
    if (this.#native === undefined) {
      throw coded(Error, "FREED", "the limiter has been freed");
    }
    return this.#native;
  }

  #view() {
    const { buffer } = moduleMemory();
    this.#key = new Uint8Array(buffer, this.#native.keyAddress(), this.#native.maxKeyBytes());
    this.#decision = new Float64Array(buffer, this.#native.decisionAddress(), 4);
  }

  /** Returns the key's length in bytes, also of one that is too long to be written. */
  #writeKey(key) {
    if (this.#key.length === 0) this.#view();
    const view = this.#key;
    const length = key.length;
    if (length > view.length) return utf8.encode(key).length;
    for (let at = 0; at < length; at++) {
      const unit = key.charCodeAt(at);
      if (unit > 0x7f) return this.#writeUnicode(key);
      view[at] = unit;
    }
    return length;
  }

  #writeUnicode(key) {
    if (!key.isWellFormed()) {
      // each would be encoded as U+FFFD, and different keys would be counted as one
      throw coded(RangeError, "INVALID_KEY", "`key`: found a lone surrogate, allowed is Unicode text");
    }
    const { read, written } = utf8.encodeInto(key, this.#key);
    return read === key.length ? written : utf8.encode(key).length;
  }
}

function clock() {
  return Math.floor(Date.now() * 1000);
}
