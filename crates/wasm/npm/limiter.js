// Checks types, reads the clock and draws the seed. WebAssembly decides.
import { Limiter as Native, moduleMemory, requireMemory } from "./dist/tidegate.js";
import {
  ACQUISITION, BLOCK, BUDGET, REFUND, RELEASE, RENEWAL, REPORT, REQUEST, RESET, SETTLEMENT,
  clock, coded, held, limiterOptions, operationText, policyText, requireNumber,
  requireWellFormed, wrongType,
} from "./input.js";

const utf8 = new TextEncoder();

export class Limiter {
  #native;
  #defaultCost;
  #isShadow;
  // Views of the module's memory, which its growth detaches. They are then made anew.
  #key = new Uint8Array();
  #decision = new Float64Array();

  constructor(policy, options = {}) {
    const text = policyText(policy);
    const written = typeof policy === "string";
    const { name, maxBytes } = limiterOptions(options);
    const seeds = crypto.getRandomValues(new Uint32Array(2));
    requireMemory(text.length);
    this.#native = new Native(text, written, name, maxBytes, seeds[0], seeds[1]);
    this.#defaultCost = this.#native.defaultCost();
    this.#isShadow = this.#native.isShadow();
  }

  check(key, cost = this.#defaultCost, now = clock()) {
    return this.#check(key, cost, now);
  }

  peek(key, request = {}, now = clock()) {
    return this.#operate(key, operationText("peek", "request", request, REQUEST), now);
  }

  decide(key, request = {}, now = clock()) {
    return this.#operate(key, operationText("check", "request", request, REQUEST), now);
  }

  acquire(key, request = {}, now = clock()) {
    return this.#operate(key, operationText("check", "request", request, ACQUISITION), now, true);
  }

  renew(key, lease, options = {}, now = clock()) {
    return this.#operate(key, operationText("renew", "options", options, RENEWAL, held(lease)), now);
  }

  release(key, lease, now = clock()) {
    return this.#operate(key, operationText("release", "options", {}, RELEASE, held(lease)), now);
  }

  budget(key, lease, wanted, now = clock()) {
    return this.#operate(key, operationText("budget", "wanted", wanted, BUDGET, held(lease)), now);
  }

  settle(key, settlement, now = clock()) {
    return this.#operate(key, operationText("settle", "settlement", settlement, SETTLEMENT), now);
  }

  refund(key, units, now = clock()) {
    const refund = { units };
    return this.#operate(key, operationText("refund", "refund", refund, REFUND), now);
  }

  reset(key, now = clock()) {
    return this.#operate(key, operationText("reset", "options", {}, RESET), now);
  }

  block(key, forUs, now = clock()) {
    const block = { forUs };
    return this.#operate(key, operationText("block", "block", block, BLOCK), now);
  }

  report(key, report, now = clock()) {
    return this.#operate(key, operationText("report", "report", report, REPORT), now);
  }

  sweep(now = clock()) {
    requireNumber("now", "INVALID_NOW", now);
    this.#inUse().sweep(now);
  }

  get size() {
    return this.#inUse().size();
  }

  get bytes() {
    return this.#inUse().bytes();
  }

  free() {
    this.#native?.free();
    this.#native = undefined;
  }

  [Symbol.dispose]() {
    this.free();
  }

  #check(key, cost, now) {
    requireNumber("cost", "INVALID_COST", cost);
    const native = this.#ready(key, now);
    const granted = native.check(this.#writeKey(key), cost, now);
    if (granted === undefined) throw native.failure();
    if (this.#decision.length === 0) this.#view(); // a new key may have grown the memory
    const numbers = this.#decision;
    const decision = {
      allowed: granted || this.#isShadow,
      limit: numbers[0],
      remaining: numbers[1],
      retryAfterUs: numbers[2],
      resetAfterUs: numbers[3],
    };
    return Object.freeze(this.#isShadow ? { ...decision, wouldAllow: granted } : decision);
  }

  #operate(key, operation, now, acquires = false) {
    const native = this.#ready(key, now);
    const answer = native.operate(this.#writeKey(key), operation, acquires, now);
    if (answer === undefined) throw native.failure();
    return readAnswer(JSON.parse(answer));
  }

  #ready(key, now) {
    if (typeof key !== "string") throw wrongType("key", "INVALID_KEY", key, "a string");
    requireNumber("now", "INVALID_NOW", now);
    return this.#inUse();
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

  /** Returns the length of the key in bytes. A key that is too long is measured but not written. */
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
    requireWellFormed("key", "INVALID_KEY", key);
    const { read, written } = utf8.encodeInto(key, this.#key);
    return read === key.length ? written : utf8.encode(key).length;
  }
}

// Literals and spreads define properties, so they call no setter of a prototype. Optional fields of an
// answer are read only if they are its own properties.
function readAnswer(answer) {
  const has = (name) => Object.hasOwn(answer, name);
  return Object.freeze({
    ...readDecision(answer),
    atUs: answer.at_us,
    ...(has("lease") && { lease: answer.lease }),
    ...(has("live") && { live: answer.live }),
    ...(has("factor") && { factor: answer.factor / 2 ** 32 }), // exact
    ...(has("would_factor") && { wouldFactor: answer.would_factor / 2 ** 32 }),
    ...(has("budget") && { budget: readBudget(answer.budget) }),
    ...(has("would_allow") && { wouldAllow: answer.would_allow }),
    limits: Object.freeze(answer.limits.map((limit) => Object.freeze({ name: limit.name, ...readDecision(limit) }))),
  });
}

function readBudget({ granted, granted_at_us, expires_at_us }) {
  return Object.freeze({ granted, grantedAtUs: granted_at_us, expiresAtUs: expires_at_us });
}

function readDecision({ allowed, limit, remaining, retry_after_us, reset_after_us }) {
  return { allowed, limit, remaining, retryAfterUs: retry_after_us, resetAfterUs: reset_after_us };
}
