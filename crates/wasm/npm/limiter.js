// Checks types, reads the clock and draws the seed. WebAssembly decides.
import { NativeLimiter as Native, moduleMemory, requireMemory, sha256 } from "#native";
import { Grant, addFlagged, hasLease, isFlagged, readAdmission, readAnswer, readExplanation, readReservation, ruleOf } from "./answer.js";
import {
  ACQUISITION, BUDGET, CHECK, NO_FIELDS, ONLY_NOW, OPTIONS, RENEWAL, REPORT, REQUEST, RESERVATION, RUN, WAIT, callOptions,
} from "./call.js";
import { asError, caught, coded, define } from "./errors.js";
import {
  admissionOptions, dumpBytes, headerValue, held, limiterOptions, requestFacts,
  requireCostAndTime, requireFunction, requireKeyText, requireTime, requireUnits, requireWellFormed, updateOptions, wrongType,
} from "./input.js";
import { requireReady } from "./module.js";
import { readPolicy } from "./reading.js";
import { prepared } from "./prepared.js";
import { running } from "./running.js";
import { blockUs, spanUs } from "./span.js";
import { clock } from "./time.js";
import { Waiting } from "./waiting.js";

/** @import * as declared from "./index.js" */
/** @import { Refund, Source } from "./answer.js" */
/** @import { Call } from "./call.js" */

const utf8 = new TextEncoder();
/** Keys that collide cost nothing while there are so few. */
const MOST_UNSEEDED = 64;

export class Limiter {
  /** @type {Native} */
  #native;
  #defaultCost = 1;
  #isShadow = false;
  #maxWaiters;
  /** @type {Waiting | undefined} */
  #waiting;
  // Views of the module's memory, which its growth detaches. They are then made anew.
  #key = new Uint8Array();
  #numbers = new Float64Array();
  /** The operations that may come before the hash table has its seed; 0 once it has it. */
  #unseeded = MOST_UNSEEDED;
  /**
   * The names of the limits of each rule, and beside each the version of its time zone's data or nothing.
   *
   * @type {Map<number, string[]>}
   */
  #names = new Map();
  /**
   * The names of the headers in which keys are found.
   *
   * @type {string[] | undefined}
   */
  #keyHeaders;

  /** @param {declared.AnyPolicy} policy @param {declared.LimiterOptions} [options] */
  constructor(policy, options = {}) {
    requireReady();
    const { name, maxBytes, maxWaiters } = limiterOptions(options);
    this.#maxWaiters = maxWaiters;
    this.#native = readPolicy(policy, (text, isWritten) => new Native(text, isWritten, name, maxBytes));
    this.#readPolicy();
  }

  /** @type {declared.Limiter["check"]} */
  check(key, options) {
    let cost = this.#defaultCost;
    let now;
    let limits;
    if (options === undefined) now = clock();
    else {
      const read = callOptions("options", options, CHECK);
      if (read.cost !== undefined) cost = read.cost;
      ({ now, limits } = read);
    }
    const keyBytes = this.#begin(key, now, limits);
    const granted = this.#native.check(keyBytes, cost, now);
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
    if (isFlagged(numbers) || this.#isShadow) addFlagged(decision, numbers, granted, this.#isShadow);
    return decision;
  }

  /** @type {declared.Limiter["decide"]} */
  decide(key, request) {
    return this.#request(key, callOptions("request", request, REQUEST));
  }

  /** @type {declared.Limiter["peek"]} */
  peek(key, request) {
    const read = callOptions("request", request, REQUEST);
    return this.#decide(key, read, read.cost ?? 0, LOOKS, readAnswer);
  }

  /** @type {declared.Limiter["explain"]} */
  explain(key, request) {
    const read = callOptions("request", request, REQUEST);
    const { cost = this.#defaultCost, now, limits, fields } = read;
    const keyBytes = this.#begin(key, now, limits);
    const text = this.#native.explain(keyBytes, cost, now, fields.class, fields.lease, fields.signalPpm, fields.draw);
    if (text === undefined) throw this.#failure(cost, now);
    return this.#answer(!text.startsWith(" "), read, undefined, (source) => readExplanation(source, text));
  }

  /** @type {declared.Limiter["acquire"]} */
  acquire(key, request) {
    return this.#request(key, callOptions("request", request, ACQUISITION), ACQUIRES);
  }

  /** @type {declared.Limiter["run"]} */
  async run(key, fn, request) {
    requireFunction("fn", fn);
    const grant = this.#request(key, callOptions("request", request, RUN), ACQUIRES);
    return running(grant, this.#native.renewEveryUs(this.#writeKey(key)), fn);
  }

  /** @type {declared.Limiter["waitFor"]} */
  async waitFor(key, options) {
    const read = callOptions("options", options, WAIT);
    if (typeof key !== "string") throw notAKey(key);
    this.#inUse();
    this.#waiting ??= new Waiting(this.#maxWaiters);
    /** @type {(now: number) => declared.Grant} */
    const ask = (now) => {
      read.now = now;
      return this.#request(key, read);
    };
    const look = () => this.#decide(key, read, read.cost ?? this.#defaultCost, LOOKS, readAnswer);
    return this.#waiting.wait(key, { ask, look }, read);
  }

  /** @type {declared.Limiter["renew"]} */
  renew(key, lease, options) {
    const read = callOptions("options", options, RENEWAL);
    held(lease);
    return this.#operate(key, read, lease, (native, keyBytes) => native.renew(keyBytes, lease, read.fields.count, read.now));
  }

  /** @type {declared.Limiter["release"]} */
  release(key, lease, options) {
    const read = callOptions("options", options, OPTIONS);
    held(lease);
    return this.#operate(key, read, lease, (native, keyBytes) => native.release(keyBytes, lease, read.now));
  }

  /** @type {declared.Limiter["budget"]} */
  budget(key, lease, wanted) {
    const read = callOptions("wanted", wanted, BUDGET);
    const { wants, grantedAtUs, left } = read.fields;
    held(lease);
    return this.#operate(key, read, lease, (native, keyBytes) => native.budget(keyBytes, lease, wants, grantedAtUs, left, read.now));
  }

  /** @type {declared.Limiter["reserve"]} */
  reserve(key, request) {
    const read = callOptions("request", request, RESERVATION);
    const { cost = this.#defaultCost, fields } = read;
    const timeToLive = fields.timeToLive === undefined ? undefined : spanUs("timeToLive", fields.timeToLive);
    return this.#operate(key, read, undefined, (native, keyBytes) =>
      native.reserve(keyBytes, cost, read.now, fields.class, fields.id, fields.signalPpm, fields.draw, timeToLive), readReservation);
  }

  /** @type {declared.Limiter["commit"]} */
  commit(key, id, actual, options) {
    const read = callOptions("options", options, ONLY_NOW);
    held(id, "id");
    requireUnits("actual", actual, 0);
    return this.#operate(key, read, id, (native, keyBytes) => native.commit(keyBytes, id, actual, read.now), readReservation);
  }

  /** @type {declared.Limiter["refund"]} */
  refund(key, units, options) {
    const read = callOptions("options", options, OPTIONS);
    requireUnits("units", units, 1);
    return this.#operate(key, read, undefined, (native, keyBytes) => native.refund(keyBytes, units, read.now));
  }

  /** @type {declared.Limiter["reset"]} */
  reset(key, options) {
    const read = callOptions("options", options, OPTIONS);
    return this.#operate(key, read, undefined, (native, keyBytes) => native.reset(keyBytes, read.now));
  }

  /** @type {declared.Limiter["block"]} */
  block(key, span, options) {
    const read = callOptions("options", options, OPTIONS);
    const forUs = blockUs(span);
    return this.#operate(key, read, undefined, (native, keyBytes) => native.block(keyBytes, forUs, read.now));
  }

  /** @type {declared.Limiter["set"]} */
  set(key, used, options) {
    const read = callOptions("options", options, OPTIONS);
    requireUnits("used", used, 0);
    return this.#operate(key, read, undefined, (native, keyBytes) => native.set(keyBytes, used, read.now));
  }

  /** @type {declared.Limiter["report"]} */
  report(key, report) {
    const read = callOptions("report", report, REPORT);
    const { admitted, suppressed, offeredAtUs } = read.fields;
    return this.#operate(key, read, undefined, (native, keyBytes) => native.report(keyBytes, admitted, suppressed, offeredAtUs, read.now));
  }

  /**
   * @template {object} T
   * @param {T} options
   * @param {{ isLast: boolean }} [among]
   * @returns {T}
   */
  prepare(options, among) {
    const read = prepared(this.#inUse(), options, among);
    this.#readKeyHeaders();
    return /** @type {any} */ (read);
  }

  /** @type {declared.Limiter["keyOf"]} */
  keyOf(request) {
    const { header, query, ip } = requestFacts(request);
    const values = this.#readKeyHeaders().map((name) => headerValue(name, header(name)));
    const native = this.#inUse();
    return caught(() => native.keyOf(values, query, ip, clock())) ?? readAdmission(native.served());
  }

  /** @type {declared.Limiter["admit"]} */
  admit(key, options = {}) {
    const { cost, headers = "", reserves = false, isOneOfSeveral = false } = admissionOptions(options);
    requireKeyText(key);
    const native = this.#inUse();
    if (this.#unseeded > 0) this.#willAddKeys();
    caught(() => native.admit(key, cost, headers, reserves, isOneOfSeveral, clock()));
    return readAdmission(native.served());
  }

  /** @type {declared.Limiter["giveBack"]} */
  giveBack(key, { grant, lease, reservation }) {
    if (reservation !== undefined) return void this.commit(key, reservation.id, 0);
    if (grant !== undefined) this.#refundGrant(key, grant.atUs, grant.units, grant.units);
    if (lease !== undefined) this.release(key, lease.name);
  }

  /** @type {declared.Limiter["resetAll"]} */
  resetAll() {
    this.#inUse().clear();
    this.#waiting?.wakeAll();
  }

  /** @type {declared.Limiter["dump"]} */
  dump() {
    const native = this.#inUse();
    return caught(() => native.dump());
  }

  /** @type {declared.Limiter["restore"]} */
  restore(dump) {
    const bytes = dumpBytes(dump);
    const native = this.#inUse();
    if (this.#unseeded > 0) this.#seed();
    caught(() => {
      requireMemory(Math.ceil(bytes.length / 64));
      native.restore(bytes);
    });
    this.#waiting?.wakeAll();
  }

  /** @type {declared.Limiter["update"]} */
  update(policy, options = {}) {
    const { policy: name, now } = updateOptions(options);
    readPolicy(policy, (text, isWritten) => this.#inUse().update(text, isWritten, name, now));
    this.#readPolicy();
    this.#waiting?.wakeAll();
  }

  /** @type {declared.Limiter["limited"]} */
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

  /** @type {declared.Limiter["sweep"]} */
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

  /** @type {declared.Limiter["free"]} */
  free() {
    this.#native?.free();
    this.#native = /** @type {any} */ (undefined); // `#inUse` finds it
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

  /**
   * Gives back units of a grant.
   *
   * @type {Refund}
   */
  #refundGrant = (key, atUs, granted, units, options) => {
    const read = callOptions("options", options, OPTIONS);
    return this.#operate(key, read, undefined, (native, keyBytes) => native.refundGrant(keyBytes, atUs, granted, units, read.now));
  };

  /** @type {(key: string, read: Call, how?: number) => any} a `Grant`, of which TypeScript does not know `[Symbol.dispose]` */
  #request(key, read, how = 0) {
    const cost = read.cost ?? this.#defaultCost;
    const { limits } = read;
    return this.#decide(key, read, cost, how, (source) => new Grant(source, this, key, cost, limits, this.#refundGrant));
  }

  /**
   * @template T
   * @param {string} key
   * @param {Call} read
   * @param {number} cost
   * @param {number} how
   * @param {(source: Source) => T} make
   */
  #decide(key, read, cost, how, make) {
    const { now, fields } = read;
    const keyBytes = this.#begin(key, now, read.limits);
    const native = this.#native;
    const granted = fields === NO_FIELDS && how !== ACQUIRES
      ? native.decide(keyBytes, cost, now, how === LOOKS)
      : native.request(keyBytes, cost, now, how === LOOKS, how === ACQUIRES, fields.class, fields.lease, fields.signalPpm, fields.draw);
    if (granted === undefined) throw this.#failure(cost, now);
    return this.#answer(granted, read, undefined, make);
  }

  /**
   * Charges units that were spent without asking, for `tidegate/rolling-rate-limiter`. It is not public: a true cost belongs into
   * the commit of a reservation, which is taken once.
   *
   * @type {(key: string, units: number, now: number) => void}
   */
  [Symbol.for("tidegate.charge")](key, units, now) {
    this.#operate(key, callOptions("options", { now }, ONLY_NOW), undefined, (native, keyBytes) => native.charge(keyBytes, units, now));
  }

  /**
   * The SHA-256 of a text in hexadecimal digits, for the drop-in classes. It is not public.
   *
   * @type {(text: string) => string}
   */
  static [Symbol.for("tidegate.sha256")](text) {
    return sha256(text);
  }

  /**
   * Does an operation after which other requests may pass.
   *
   * @type {(key: string, read: Call, lease: string | undefined, call: (native: Native, keyBytes: number) => boolean | undefined,
   *   make?: (source: Source) => declared.Answer) => any}
   */
  #operate(key, read, lease, call, make = readAnswer) {
    const keyBytes = this.#begin(key, read.now, read.limits);
    const granted = call(this.#native, keyBytes);
    if (granted === undefined) throw this.#failure(read.cost ?? 0, read.now);
    const answer = this.#answer(granted, read, lease, make);
    this.#waiting?.wake(key, this.#native.sharesStates());
    return answer; // it names a lease if the operation does
  }

  /**
   * Begins an operation: writes the key, and says which limits hold. Returns the length of the key in bytes.
   *
   * @type {(key: string, now: number, limits: string | undefined) => number}
   */
  #begin(key, now, limits) {
    const native = this.#inUse();
    if (typeof key !== "string") throw notAKey(key);
    if (this.#unseeded > 0) this.#willAddKeys();
    const keyBytes = this.#writeKey(key); // before the limits, which would hold for the next key if this one is invalid
    if (limits !== undefined) {
      requireTime(now);
      caught(() => native.underLimits(limits, now));
    }
    return keyBytes;
  }

  /**
   * @template T
   * @param {boolean} granted
   * @param {Call} read
   * @param {string | undefined} lease
   * @param {(source: Source) => T} make
   */
  #answer(granted, { limits }, lease, make) {
    if (this.#numbers.length === 0) this.#view();
    const [numbers, native] = [this.#numbers, this.#native];
    const names = this.#namesOf(ruleOf(numbers), limits !== undefined);
    if (hasLease(numbers)) lease = native.lease() ?? lease;
    return make({ numbers, granted, isShadow: this.#isShadow, names, lease });
  }

  /** @type {(rule: number, isOfCall: boolean) => string[]} */
  #namesOf(rule, isOfCall) {
    if (rule < 0) return [];
    const known = isOfCall ? undefined : this.#names.get(rule);
    if (known !== undefined) return known;
    const names = this.#native.limitNames(rule).split("\0");
    if (!isOfCall) this.#names.set(rule, names);
    return names;
  }

  /** @type {(cost: number, now: number) => unknown} */
  #failure(cost, now) {
    requireCostAndTime(cost, now);
    return asError(this.#native.failure());
  }

  #inUse() {
    if (this.#native === undefined) throw freed();
    return this.#native;
  }

  #view() {
    const { buffer } = moduleMemory();
    this.#key = new Uint8Array(buffer, this.#native.keyAddress(), this.#native.maxKeyBytes());
    this.#numbers = new Float64Array(buffer, this.#native.numbersAddress(), this.#native.numbersLength());
  }

  /** Draws the seed of the hash table only once it may have many keys: in Node the first draw takes milliseconds. */
  #willAddKeys() {
    if (this.#unseeded > 1) this.#unseeded--;
    else this.#seed();
  }

  #seed() {
    const seeds = new Uint32Array(2);
    try {
      crypto.getRandomValues(seeds);
    } catch (error) {
      throw coded("NO_RANDOMNESS", `a limiter needs random numbers before it has many keys: ${/** @type {Error} */ (error).message}`);
    }
    this.#native.seed(seeds[0], seeds[1]);
    this.#unseeded = 0;
  }

  /**
   * Returns the length of the key in bytes. A key that is too long is measured but not written.
   *
   * @type {(key: string) => number}
   */
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

  /** @type {(key: string) => number} */
  #writeUnicode(key) {
    requireWellFormed("key", "INVALID_KEY", key);
    const { read, written } = utf8.encodeInto(key, this.#key);
    return read === key.length ? written : utf8.encode(key).length;
  }
}

// How a request is decided, unless it takes its cost.
const [LOOKS, ACQUIRES] = [1, 2];

/** @type {(key: unknown) => Error} */
const notAKey = (key) => wrongType("key", "INVALID_KEY", key, "a string");
const freed = () => coded("FREED", "the limiter has been freed");
