// What JavaScript alone can do: types, the clock, the seed. Whatever decides is in WebAssembly.
import { Limiter as Native, moduleMemory } from "./dist/tidegate.js";
import { coded, policyText, readOptions, wrongType } from "./input.js";

const utf8 = new TextEncoder();

export class Limiter {
  #native;
  #defaultCost;
  // Views of the module's memory, made anew whenever its growth has detached them.
  #key = new Uint8Array();
  #decision = new Float64Array();

  constructor(policy, options = {}) {
    const text = policyText(policy);
    const written = typeof policy === "string";
    const { name, maxKeys } = readOptions(options);
    const [seedHigh, seedLow] = crypto.getRandomValues(new Uint32Array(2));
    this.#native = new Native(text, written, name, maxKeys, seedHigh, seedLow);
    this.#defaultCost = this.#native.defaultCost();
  }

  check(key, cost = this.#defaultCost, now = clock()) {
    return this.#decide(key, cost, now);
  }

  peek(key, now = clock()) {
    return this.#decide(key, 0, now);
  }

  sweep(now = clock()) {
    requireNumber("now", "INVALID_NOW", now);
    this.#inUse().sweep(now);
  }

  get size() {
    return this.#inUse().size();
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
    requireNumber("cost", "INVALID_COST", cost);
    requireNumber("now", "INVALID_NOW", now);
    const native = this.#inUse();
    const allowed = native.check(this.#writeKey(key), cost, now);
    if (allowed === undefined) throw native.failure();
    if (this.#decision.length === 0) this.#view(); // a new key may have grown the memory
    const numbers = this.#decision;
    return Object.freeze({
      allowed,
      limit: numbers[0],
      remaining: numbers[1],
      retryAfterUs: numbers[2],
      resetAfterUs: numbers[3],
    });
  }

  #inUse() {
    if (this.#native === undefined) throw coded(Error, "FREED", "the limiter has been freed");
    return this.#native;
  }

  #view() {
    const { buffer } = moduleMemory();
    this.#key = new Uint8Array(buffer, this.#native.keyAddress(), this.#native.maxKeyBytes());
    this.#decision = new Float64Array(buffer, this.#native.decisionAddress(), 4);
  }

  /** Returns the length of the key in bytes, which is all that is needed of one that is too long. */
  #writeKey(key) {
    if (this.#key.length === 0) this.#view();
    const bytes = this.#key;
    if (key.length > bytes.length) return utf8.encode(key).length;
    for (let at = 0; at < key.length; at++) {
      const unit = key.charCodeAt(at);
      if (unit > 0x7f) return this.#writeUnicode(key);
      bytes[at] = unit;
    }
    return key.length;
  }

  #writeUnicode(key) {
    if (!key.isWellFormed()) {
      // every lone surrogate is encoded alike, so that different keys would be counted as one
      const message = "`key`: found a lone surrogate, allowed is well-formed Unicode";
      throw coded(RangeError, "INVALID_KEY", message);
    }
    const { read, written } = utf8.encodeInto(key, this.#key);
    return read === key.length ? written : utf8.encode(key).length;
  }
}

function requireNumber(field, code, value) {
  if (typeof value !== "number") throw wrongType(field, code, value, "a number");
}

/** Microseconds since the Unix epoch. */
function clock() {
  return Math.floor(Date.now() * 1000);
}
