// Checks types, reads the clock and draws the seed. WebAssembly decides.
import { NativeLimiter as Native, moduleMemory, requireMemory } from "#native";
import { Grant, hasLease, readAdmission, readAnswer, ruleOf } from "./answer.js";
import { asError, caught, coded, define } from "./errors.js";
import {
  ACQUISITION, BUDGET, CHECK, ONLY_NOW, OPTIONS, RENEWAL, REPORT, REQUEST, SETTLEMENT, WAIT,
  callOptions, clock, dumpBytes, held, limiterOptions, middlewareOptions, operationText, policyText, requireCostAndTime, requireTime,
  requireNumber, requireUnits, requireWellFormed, spanUs, updateOptions, wrongType,
} from "./input.js";
import { requireReady } from "./module.js";
import { Waiting } from "./waiting.js";

const utf8 = new TextEncoder();

export class Limiter {
  #native;
  #defaultCost;
  #isShadow;
  #maxWaiters;
  #waiting;
  // Views of the module's memory, which its growth detaches. They are then made anew.
  #key = new Uint8Array();
  #numbers = new Float64Array();
  #isSeeded = false;
  /** The names of the limits of each rule. */
  #names = new Map();
  /** The names of the headers in which keys are found. */
  #keyHeaders;

  constructor(policy, options = {}) {
    requireReady();
    const text = policyText(policy);
    const { name, maxBytes, maxWaiters } = limiterOptions(options);
    this.#maxWaiters = maxWaiters;
    this.#native = caught(() => {
      requireMemory(text.length);
      return new Native(text, typeof policy === "string", name, maxBytes);
    });
    this.#readPolicy();
  }

  check(key, options) {
    let cost = this.#defaultCost;
    let now;
    if (options === undefined) now = clock();
    else {
      const read = callOptions("options", options, CHECK);
      if (read.cost !== undefined) cost = read.cost;
      now = read.now;
      this.#begin(key, read);
    }
    const native = this.#inUse();
    if (typeof key !== "string") throw notAKey(key);
    const granted = native.check(this.#writeKey(key), cost, now);
    if (granted === undefined) throw this.#failure(cost, now);
    if (this.#numbers.length === 0) this.#view(); // a new key may have grown the memory
    const numbers = this.#numbers;
    const decision = {
      allowed: granted || this.#isShadow,
      limit: numbers[0],
      remaining: numbers[1],
      retryAfterUs: numbers[2],
      resetAfterUs: numbers[3],
    };
    if (this.#isShadow) define(decision, "wouldAllow", granted);
    return decision;
  }

  decide(key, request) {
    return this.#request(key, callOptions("request", request, REQUEST));
  }

  peek(key, request) {
    const read = callOptions("request", request, REQUEST);
    if (read.text === "") return this.#decide(key, read, read.cost ?? 0, true, readAnswer);
    return this.#operate(key, operationText("peek", withCost(read)), read);
  }

  explain(key, request) {
    const read = callOptions("request", request, REQUEST);
    read.cost ??= this.#defaultCost;
    const native = this.#begin(key, read);
    const text = native.explain(this.#writeKey(key), operationText("peek", withCost(read)), read.now);
    if (text === undefined) throw this.#failure(read.cost, read.now);
    const answer = this.#answer(!text.startsWith(" "), read, undefined, readAnswer);
    const [limit, bound, sentence] = text.slice(1).split("\0");
    return { ...answer, limitName: limit || undefined, bound, text: sentence };
  }

  acquire(key, request) {
    return this.#request(key, callOptions("request", request, ACQUISITION), true);
  }

  async waitFor(key, options) {
    const read = callOptions("options", options, WAIT);
    if (typeof key !== "string") throw notAKey(key);
    this.#inUse();
    this.#waiting ??= new Waiting(this.#maxWaiters);
    const ask = () => {
      read.now = clock();
      return this.#request(key, read);
    };
    return this.#waiting.wait(key, ask, read);
  }

  renew(key, lease, options) {
    const read = callOptions("options", options, RENEWAL);
    return this.#changed(key, operationText("renew", read.text, held(lease)), read, lease);
  }

  release(key, lease, options) {
    const read = callOptions("options", options, OPTIONS);
    return this.#changed(key, operationText("release", "", held(lease)), read, lease);
  }

  budget(key, lease, wanted) {
    const read = callOptions("wanted", wanted, BUDGET);
    return this.#changed(key, operationText("budget", read.text, held(lease)), read, lease);
  }

  settle(key, settlement) {
    const read = callOptions("settlement", settlement, SETTLEMENT);
    return this.#changed(key, operationText("settle", read.text), read);
  }

  refund(key, units, options) {
    const read = callOptions("options", options, OPTIONS);
    requireUnits("units", units, 1);
    return this.#changed(key, operationText("refund", `"units":${units}`), read);
  }

  reset(key, options) {
    const read = callOptions("options", options, OPTIONS);
    return this.#changed(key, operationText("reset", ""), read);
  }

  block(key, span, options) {
    const read = callOptions("options", options, OPTIONS);
    return this.#changed(key, operationText("block", `"for_us":${spanUs("span", span)}`), read);
  }

  set(key, used, options) {
    const read = callOptions("options", options, OPTIONS);
    requireUnits("used", used, 0);
    const native = this.#begin(key, read);
    const granted = native.set(this.#writeKey(key), used, read.now);
    if (granted === undefined) throw this.#failure(0, read.now);
    return this.#woken(key, this.#answer(granted, read, undefined, readAnswer));
  }

  report(key, report) {
    const read = callOptions("report", report, REPORT);
    return this.#changed(key, operationText("report", read.text), read);
  }

  prepare(options) {
    const read = middlewareOptions(options);
    const native = this.#inUse();
    if (native.requireForm === undefined) {
      throw coded("INVALID_OPTION", "expected a limiter of `tidegate/toml`, which has what middleware needs; found one without it");
    }
    caught(() => native.requireForm(read.headers ?? ""));
    this.#readKeyHeaders();
    return read;
  }

  keyOf({ header, query, ip }) {
    if (ip !== undefined && typeof ip !== "string") throw wrongType("ip", "INVALID_OPTION", ip, "a string");
    const values = this.#readKeyHeaders().map((name) => header(name) ?? "");
    const native = this.#inUse();
    return caught(() => native.keyOf(values, query, ip, clock())) ?? readAdmission(native.told());
  }

  admit(key, { cost, headers = "" } = {}) {
    if (typeof key !== "string") throw notAKey(key);
    requireWellFormed("key", "INVALID_KEY", key);
    if (cost !== undefined) requireNumber("cost", "INVALID_COST", cost);
    const native = this.#inUse();
    if (!this.#isSeeded) this.#seed();
    caught(() => native.admit(key, cost, headers, clock()));
    return readAdmission(native.told());
  }

  resetAll() {
    this.#inUse().clear();
    this.#waiting?.wakeAll();
  }

  dump() {
    const native = this.#inUse();
    return caught(() => native.dump());
  }

  restore(dump) {
    const bytes = dumpBytes(dump);
    const native = this.#inUse();
    if (!this.#isSeeded) this.#seed();
    caught(() => {
      requireMemory(Math.ceil(bytes.length / 64));
      native.restore(bytes);
    });
    this.#waiting?.wakeAll();
  }

  update(policy, options = {}) {
    const text = policyText(policy);
    const name = updateOptions(options);
    const native = this.#inUse();
    caught(() => {
      requireMemory(text.length);
      native.update(text, typeof policy === "string", name);
    });
    this.#readPolicy();
    this.#waiting?.wakeAll();
  }

  *limited(options) {
    const { now } = callOptions("options", options, ONLY_NOW);
    requireTime(now);
    for (let place = 0; place !== undefined;) {
      const native = this.#inUse();
      const from = place;
      const found = caught(() => native.limited(now, from));
      for (let at = 0; at + 1 < found.length; at += 3) {
        yield { key: found[at], limit: found[at + 1], retryAfterUs: found[at + 2] };
        this.#inUse();
      }
      place = found[found.length - 1];
    }
  }

  sweep(options) {
    const { now } = callOptions("options", options, ONLY_NOW);
    requireTime(now);
    this.#inUse().sweep(now);
  }

  get size() {
    return this.#inUse().size();
  }

  get bytes() {
    return this.#inUse().bytes();
  }

  get waiting() {
    this.#inUse();
    return this.#waiting?.size ?? 0;
  }

  free() {
    this.#native?.free();
    this.#native = undefined;
    this.#waiting?.close(freed());
  }

  [Symbol.dispose ?? Symbol.for("Symbol.dispose")]() {
    this.free();
  }

  #readPolicy() {
    this.#defaultCost = this.#native.defaultCost();
    this.#isShadow = this.#native.isShadow();
    this.#names.clear();
    this.#keyHeaders = undefined;
  }

  #readKeyHeaders() {
    const native = this.#inUse();
    return (this.#keyHeaders ??= caught(() => native.keyHeaders()));
  }

  /** Decides on a request, which acquires a lease if a limit on the key holds leases. */
  #request(key, read, acquires = false) {
    const cost = read.cost ?? this.#defaultCost;
    const grant = (source) => new Grant(source, this, key, cost, read.limits);
    if (read.text === "" && !acquires) return this.#decide(key, read, cost, false, grant);
    return this.#operate(key, operationText("check", withCost(read)), read, undefined, acquires, grant);
  }

  #decide(key, read, cost, looks, make) {
    const native = this.#begin(key, read);
    const granted = native.decide(this.#writeKey(key), cost, read.now, looks);
    if (granted === undefined) throw this.#failure(cost, read.now);
    return this.#answer(granted, read, undefined, make);
  }

  #operate(key, text, read, lease, acquires = false, make = readAnswer) {
    const native = this.#begin(key, read);
    const granted = native.operate(this.#writeKey(key), text, acquires, read.now);
    if (granted === undefined) throw this.#failure(0, read.now);
    return this.#answer(granted, read, lease, make);
  }

  /** Does an operation after which other requests may pass. */
  #changed(key, text, read, lease) {
    return this.#woken(key, this.#operate(key, text, read, lease));
  }

  #woken(key, answer) {
    if (this.#waiting !== undefined) {
      if (this.#native.sharesStates()) this.#waiting.wakeAll();
      else this.#waiting.wake(key);
    }
    return answer;
  }

  /** Checks the key, and says which limits hold for the next operation. */
  #begin(key, { limits, now }) {
    if (typeof key !== "string") throw notAKey(key);
    const native = this.#inUse();
    if (limits !== undefined) {
      requireTime(now);
      caught(() => native.underLimits(limits, now));
    }
    return native;
  }

  #answer(granted, { limits }, lease, make) {
    if (this.#numbers.length === 0) this.#view();
    const [numbers, native] = [this.#numbers, this.#native];
    const names = this.#namesOf(ruleOf(numbers), limits !== undefined);
    if (hasLease(numbers)) lease = native.lease() ?? lease;
    return make({ numbers, granted, isShadow: this.#isShadow, names, lease });
  }

  #namesOf(rule, isOfCall) {
    if (rule < 0) return [];
    const known = isOfCall ? undefined : this.#names.get(rule);
    if (known !== undefined) return known;
    const names = this.#native.limitNames(rule).split("\0");
    if (!isOfCall) this.#names.set(rule, names);
    return names;
  }

  #failure(cost, now) {
    requireCostAndTime(cost, now);
    return asError(this.#native.failure());
  }

  #inUse() {
    if (this.#native === undefined) throw freed();
    return this.#native;
  }

  #view() {
    if (!this.#isSeeded) this.#seed();
    const { buffer } = moduleMemory();
    this.#key = new Uint8Array(buffer, this.#native.keyAddress(), this.#native.maxKeyBytes());
    this.#numbers = new Float64Array(buffer, this.#native.numbersAddress(), this.#native.numbersLength());
  }

  /** Seeds the hash table before the first key: the global scope of a Worker makes limiters, but has no random numbers. */
  #seed() {
    const seeds = new Uint32Array(2);
    try {
      crypto.getRandomValues(seeds);
    } catch (error) {
      throw coded("NO_RANDOMNESS", `a limiter needs random numbers before its first key: ${error.message}`);
    }
    this.#native.seed(seeds[0], seeds[1]);
    this.#isSeeded = true;
  }

  /** Returns the length of the key in bytes. A key that is too long is measured but not written. */
  #writeKey(key) {
    if (this.#key.length === 0) this.#view();
    const bytes = this.#key;
    const { length } = key;
    if (length > bytes.length) return utf8.encode(key).length;
    let all = 0;
    for (let at = 0; at < length; at++) {
      const unit = key.charCodeAt(at);
      all |= unit;
      bytes[at] = unit;
    }
    return all > 0x7f ? this.#writeUnicode(key) : length;
  }

  #writeUnicode(key) {
    requireWellFormed("key", "INVALID_KEY", key);
    const { read, written } = utf8.encodeInto(key, this.#key);
    return read === key.length ? written : utf8.encode(key).length;
  }
}

/** The fields of a request in JSON, with its cost. */
function withCost({ text, cost }) {
  if (cost === undefined) return text;
  return `"cost":${cost}${text && ","}${text}`;
}

const notAKey = (key) => wrongType("key", "INVALID_KEY", key, "a string");
const freed = () => coded("FREED", "the limiter has been freed");
