// A limiter whose states are elsewhere: in Redis, or in Durable Objects. WebAssembly says what to send and reads what comes back; a
// carrier sends it.
import { NativeAuthority as Native, longKey, moduleMemory } from "#native";
import { hasLease, readAdmission, readExplanation, ruleOf } from "../answer.js";
import * as calls from "../call.js";
import { asError, caught, coded, define } from "../errors.js";
import {
  MOST_WAITERS, admissionOptions, clock, headerValue, held, known, requestFacts, requireFunction, requireText, requireUnits, requireWellFormed,
  requireWhole, wrongType,
} from "../input.js";
import { readPolicy } from "../reading.js";
import { prepared } from "../prepared.js";
import { AsyncGrant } from "../grant.js";
import { running } from "../running.js";
import { spanUs } from "../span.js";
import { LOOK_AGAIN_US, Waiting } from "../waiting.js";
import { answerOf, decisionOf, reservationOf } from "./answer.js";

/** @import * as declared from "../redis.js" */
/** @import { Call, FieldList } from "../call.js" */
/** @import { Refund } from "../grant.js" */
/** @import { Source } from "./answer.js" */
/** @typedef {(read: Call) => (native: Native) => number} Prepare checks what an operation is given, and then begins it: returns its token */
/** @typedef {(native: Native, at: number) => number | undefined} Begin begins an operation, and returns its token; `undefined` if it needs nobody */
/** @typedef {{ resolve: (answer: any) => void, reject: (error: unknown) => void, read: () => any, begin: Begin }} Waiter */
/**
 * Sends what a limiter asks.
 *
 * @typedef {object} Carrier
 * @property {boolean} isBusy
 * @property {boolean} isOver whether WebAssembly has begun anew since the carrier was made
 * @property {() => number} at microseconds by a clock that never goes back
 * @property {(token: number, settled: Promise<any>, waits: () => boolean) => unknown} wake is told of an operation that waits
 * @property {() => void} [requireTime] throws if no caller may say the time of an operation
 * @property {(error: unknown) => void} [recover] lets WebAssembly begin anew if it has ended by this error
 * @property {() => void} [giveUp] ends what waits without an answer
 * @property {() => void} [drain] lets the store take back what the limiter holds
 * @property {() => void} [end] ends its timers
 */
/**
 * What a carrier tells its limiter.
 *
 * @typedef {object} Heard
 * @property {() => void} answers some answers have come
 * @property {(error: unknown) => void} failed WebAssembly has ended for ever
 * @property {() => void} ended WebAssembly has begun anew
 */
/** @typedef {(text: string, isWritten: boolean) => Native} Make reads the policy */
/** @typedef {(native: Native, heard: Heard) => Carrier} Carry */

export class FarLimiter {
  /** @type {Native} */
  #native;
  /** @type {Carrier} */
  #carrier;
  #make;
  #defaultCost;
  #isShadow;
  #sharesStates;
  /**
   * The callers that wait, by the tokens of their operations.
   *
   * @type {Map<number, Waiter>}
   */
  #waiters = new Map();
  /** A view of the module's memory, which its growth detaches. It is then made anew. */
  #numbers = new Float64Array();
  /**
   * The names of the limits of each rule, as those of a `Limiter`.
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
  /** The requests of `waitFor`. */
  #waiting = new Waiting(MOST_WAITERS, LOOK_AGAIN_US);
  /** @type {Promise<void> | undefined} */
  #closed;
  #onDrained = () => {};
  /** Whether the store was asked to take back what this process holds. */
  #hasGivenBack = false;

  /** @param {import("../index.js").AnyPolicy} policy @param {Make} make @param {Carry} carry */
  constructor(policy, make, carry) {
    /** @type {Heard} */
    const heard = { answers: () => this.#settle(), failed: (error) => this.#fail(error), ended: () => this.#beginAnew() };
    this.#make = readPolicy(policy, (text, isWritten) => {
      let first = /** @type {Native | undefined} */ (make(text, isWritten));
      return () => {
        const native = first ?? caught(() => make(text, isWritten));
        first = undefined;
        return { native, carrier: carry(native, heard) };
      };
    });
    const { native, carrier } = this.#make();
    [this.#native, this.#carrier] = [native, carrier];
    this.#defaultCost = native.defaultCost();
    this.#isShadow = native.isShadow();
    this.#sharesStates = native.sharesStates();
  }

  /** @type {declared.RedisLimiter["check"]} */
  check(key, options) {
    return this.#ask(key, "options", options, CHECK, ({ cost = this.#defaultCost }) => (native) => native.check(cost), decisionOf);
  }

  /** @type {declared.RedisLimiter["decide"]} */
  decide(key, request) {
    return this.#request(key, request, REQUEST, false);
  }

  /** @type {declared.RedisLimiter["peek"]} */
  peek(key, request) {
    return this.#ask(key, "request", request, REQUEST, ({ cost = 0, fields }) => (native) =>
      native.request(cost, true, false, fields.class, fields.lease, fields.signalPpm, fields.draw));
  }

  /** @type {declared.RedisLimiter["explain"]} */
  explain(key, request) {
    /** @type {Prepare} */
    const prepare = ({ cost = this.#defaultCost, fields }) => (native) =>
      native.explain(cost, fields.class, fields.lease, fields.signalPpm, fields.draw);
    return this.#ask(key, "request", request, REQUEST, prepare, (source) => {
      const words = this.#native.explained();
      return words === undefined ? answerOf(source) : readExplanation(source, words);
    });
  }

  /** @type {declared.RedisLimiter["waitFor"]} */
  async waitFor(key, options) {
    const read = calls.callOptions("options", options, WAIT);
    requireKey(key);
    this.#inUse();
    const { cost = this.#defaultCost, fields } = read;
    return this.#waiting.wait(key, {
      ask: (now) => this.#decide(key, { ...read, now }, false, false),
      look: () => this.#begin(key, { ...read, now: clock() }, false, (native) =>
        native.request(cost, true, false, fields.class, fields.lease, fields.signalPpm, fields.draw)),
    }, read);
  }

  /** @type {declared.RedisLimiter["acquire"]} */
  acquire(key, request) {
    return this.#request(key, request, ACQUISITION, true);
  }

  /** @type {declared.RedisLimiter["run"]} */
  async run(key, fn, request) {
    requireFunction("fn", fn);
    let renewEveryUs = 0;
    const grant = await this.#request(key, request, RUN, true, () => {
      renewEveryUs = this.#native.renewEveryUs();
    });
    return running(grant, renewEveryUs, fn);
  }

  /** @type {declared.RedisLimiter["renew"]} */
  renew(key, lease, options) {
    return this.#operate(key, "options", options, RENEWAL, ({ fields }) => {
      held(lease);
      return (native) => native.renew(lease, fields.count);
    });
  }

  /** @type {declared.RedisLimiter["release"]} */
  release(key, lease, options) {
    return this.#operate(key, "options", options, OPTIONS, () => {
      held(lease);
      return (native) => native.release(lease);
    });
  }

  /** @type {declared.RedisLimiter["budget"]} */
  budget(key, lease, wanted) {
    return this.#operate(key, "wanted", wanted, BUDGET, ({ fields }) => {
      held(lease);
      return (native) => native.budget(lease, fields.wants, fields.grantedAtUs, fields.left);
    });
  }

  /** @type {declared.RedisLimiter["report"]} */
  report(key, report) {
    return this.#operate(key, "report", report, REPORT, ({ fields }) => (native) =>
      native.report(fields.admitted, fields.suppressed, fields.offeredAtUs));
  }

  /** @type {declared.RedisLimiter["reserve"]} */
  reserve(key, request) {
    return this.#operate(key, "request", request, calls.RESERVATION, ({ cost = this.#defaultCost, fields }) => {
      const timeToLive = fields.timeToLive === undefined ? undefined : spanUs("timeToLive", fields.timeToLive);
      return (native) => native.reserve(cost, fields.class, fields.id, fields.signalPpm, fields.draw, timeToLive);
    }, reservationOf);
  }

  /** @type {declared.RedisLimiter["commit"]} */
  commit(key, id, actual, options) {
    return this.#operate(key, "options", options, calls.ONLY_NOW, () => {
      held(id, "id");
      requireUnits("actual", actual, 0);
      return (native) => native.commit(id, actual);
    }, reservationOf);
  }

  /** @type {declared.RedisLimiter["refund"]} */
  refund(key, units, options) {
    return this.#operate(key, "options", options, OPTIONS, () => {
      requireUnits("units", units, 1);
      return (native) => native.refund(units);
    });
  }

  /** @type {declared.RedisLimiter["reset"]} */
  reset(key, options) {
    return this.#operate(key, "options", options, OPTIONS, () => (native) => native.reset());
  }

  /** @type {declared.RedisLimiter["block"]} */
  block(key, span, options) {
    return this.#operate(key, "options", options, OPTIONS, () => {
      const forUs = spanUs("span", span);
      return (native) => native.block(forUs);
    });
  }

  /** @type {declared.RedisLimiter["prepare"]} */
  prepare(options, among) {
    const native = this.#inUse();
    const read = prepared(native, options, among);
    this.#keyHeaders ??= caught(() => native.keyHeaders());
    return /** @type {any} */ (read);
  }

  /** @type {declared.RedisLimiter["keyOf"]} */
  keyOf(request) {
    const { header, query, ip } = requestFacts(request);
    const native = this.#inUse();
    const names = (this.#keyHeaders ??= caught(() => native.keyHeaders()));
    const values = names.map((name) => headerValue(name, header(name)));
    return caught(() => native.keyOf(values, query, ip, clock())) ?? readAdmission(native.served());
  }

  /** @type {declared.RedisLimiter["admit"]} */
  async admit(key, options = {}) {
    const { cost, headers = "", reserves = false, isOneOfSeveral = false } = admissionOptions(options);
    if (typeof key !== "string") throw wrongType("key", "INVALID_KEY", key, "a string");
    requireWellFormed("key", "INVALID_KEY", key);
    return this.#wait((native, at) => native.admit(key, cost, headers, reserves, isOneOfSeveral, clock(), at), () => {
      const admission = readAdmission(this.#native.served());
      const degraded = this.#native.degraded();
      if (degraded !== undefined) define(admission, "degraded", degraded);
      return admission;
    });
  }

  /** @type {declared.RedisLimiter["giveBack"]} */
  async giveBack(key, { grant, lease, reservation }) {
    if (reservation !== undefined) return void certain(await this.commit(key, reservation.id, 0));
    if (grant !== undefined) certain(await this.#refundGrant(key, grant.atUs, grant.units, grant.units));
    if (lease !== undefined) certain(await this.release(key, lease.name));
  }

  get waiting() {
    return this.#waiters.size + this.#waiting.size;
  }

  /** @type {declared.RedisLimiter["close"]} */
  close() {
    if (this.#native !== undefined) this.#beginAnew();
    this.#closed ??= new Promise((resolve) => {
      this.#onDrained = resolve;
    });
    this.#waiting.close(closed());
    this.#endIfDrained();
    return this.#closed;
  }

  [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    return this.close();
  }

  /** @type {(key: string, request: object | undefined, fields: FieldList, acquires: boolean, onAnswer?: () => void) => Promise<any>} */
  async #request(key, request, fields, acquires, onAnswer) {
    return this.#decide(key, calls.callOptions("request", request, fields), isTimed(request), acquires, onAnswer);
  }

  /**
   * Decides on a request whose fields were read.
   *
   * @type {(key: string, read: Call, isTimed: boolean, acquires: boolean, onAnswer?: () => void) => Promise<any>}
   */
  #decide(key, read, isTimed, acquires, onAnswer = () => {}) {
    const { cost = this.#defaultCost, fields: { class: name, lease, signalPpm, draw } } = read;
    /** @type {(source: Source) => AsyncGrant} */
    const make = (source) => {
      onAnswer();
      const { granted, lease, degraded } = source;
      const answer = answerOf(source);
      /** @type {Refund} */
      const refund = (options) => {
        const read = calls.callOptions("options", options, calls.ONLY_NOW);
        const now = options?.now === undefined ? undefined : read.now;
        return (left, units) => this.#refundGrant(key, answer.atUs, left, units, now);
      };
      const units = granted && degraded === undefined ? cost : 0;
      // without an answer Redis may have written the lease nevertheless
      const holds = lease !== undefined && (granted || degraded !== undefined);
      return new AsyncGrant(answer, { limiter: this, key, units, holds, refund });
    };
    return this.#begin(key, read, isTimed, (native) => native.request(cost, false, acquires, name, lease, signalPpm, draw), make);
  }

  /**
   * Does an operation.
   *
   * @type {(key: string, argument: string, given: any, fields: FieldList, prepare: Prepare, make?: (source: Source) => any) => Promise<any>}
   */
  async #ask(key, argument, given, fields, prepare, make) {
    const read = calls.callOptions(argument, given, fields);
    return this.#begin(key, read, isTimed(given), prepare(read), make);
  }

  /**
   * Does an operation after which other requests may pass.
   *
   * @type {(key: string, argument: string, given: any, fields: FieldList, prepare: Prepare, make?: (source: Source) => any) => Promise<any>}
   */
  async #operate(key, argument, given, fields, prepare, make) {
    const answer = await this.#ask(key, argument, given, fields, prepare, make);
    // addresses of one network, and all ways to write an address, are one key
    if (key.startsWith("ip:") || this.#sharesStates) this.#waiting.wakeAll();
    else this.#waiting.wake(key);
    return answer;
  }

  /**
   * Does an operation whose options were read. The operations that begin before the next turn of the event loop's microtasks share
   * a call to the store.
   *
   * @type {(key: string, read: Call, isTimed: boolean, begin: (native: Native) => number, make?: (source: Source) => any) => Promise<any>}
   */
  #begin(key, read, isTimed, begin, make = answerOf) {
    requireKey(key);
    if (isTimed) this.#carrier.requireTime?.();
    return this.#wait((native, at) => {
      native.begin(key, read.now, isTimed, at);
      return begin(native);
    }, () => make(this.#source()));
  }

  /**
   * Begins an operation, and waits for its answer.
   *
   * @type {(begin: Begin, read: () => any) => Promise<any>}
   */
  #wait(begin, read) {
    let wake = () => {};
    const settled = new Promise((resolve, reject) => { // what throws in here rejects
      const native = this.#inUse();
      const carrier = this.#carrier;
      try {
        const token = caught(() => begin(native, carrier.at()));
        if (token === undefined) return resolve(read());
        const waiter = { resolve, reject, read, begin };
        this.#waiters.set(token, waiter);
        wake = () => void carrier.wake(token, settled, () => this.#waiters.get(token) === waiter);
      } catch (error) {
        carrier.recover?.(error);
        throw error;
      }
    });
    wake();
    return settled;
  }

  /** @type {(key: string, atUs: number, granted: number, units: number, now?: number) => Promise<declared.Answer>} */
  #refundGrant(key, atUs, granted, units, now) {
    return this.#operate(key, "options", { now }, calls.ONLY_NOW, () => (native) => native.refundGrant(atUs, granted, units));
  }

  #inUse() {
    if (this.#closed !== undefined) throw closed();
    this.#beginAnew();
    return this.#native;
  }

  /** Gives the answers to their callers. */
  #settle() {
    const native = this.#native;
    const at = this.#carrier.at();
    for (let token = native.pollAnswer(at); token !== undefined; token = native.pollAnswer(at)) {
      const waiter = this.#waiters.get(token);
      this.#waiters.delete(token);
      const failure = native.failure();
      if (failure !== undefined) waiter?.reject(asError(failure));
      else waiter?.resolve(waiter.read());
    }
    this.#endIfDrained();
  }

  /** @returns {Source} what the last answer is read from */
  #source() {
    const native = this.#native;
    if (this.#numbers.length === 0) {
      this.#numbers = new Float64Array(moduleMemory().buffer, native.numbersAddress(), native.numbersLength());
    }
    const [numbers, isShadow, granted] = [this.#numbers, this.#isShadow, native.passes()];
    const degraded = native.degraded();
    if (degraded !== undefined) return { numbers, granted, isShadow, names: [], lease: native.lease(), degraded };
    return { numbers, granted, isShadow, names: this.#namesOf(ruleOf(numbers)), lease: hasLease(numbers) ? native.lease() : undefined };
  }

  /** @type {(rule: number) => string[]} */
  #namesOf(rule) {
    if (rule < 0) return [];
    let names = this.#names.get(rule);
    if (names === undefined) this.#names.set(rule, names = this.#native.limitNames(rule).split("\0"));
    return names;
  }

  /**
   * WebAssembly has ended, which only a lack of memory does. No caller waits for ever.
   *
   * @type {(error: unknown) => void}
   */
  #fail(error) {
    this.#closed ??= Promise.resolve();
    for (const { reject } of this.#waiters.values()) reject(error);
    this.#waiters.clear();
    this.#onDrained();
  }

  /** WebAssembly may have begun anew. Nobody knows what has become of the operations under way, so `on_error` decides on them. */
  #beginAnew() {
    if (!this.#carrier.isOver) return;
    const waiting = [...this.#waiters.values()];
    this.#waiters.clear();
    const { native, carrier } = this.#make();
    [this.#native, this.#carrier, this.#numbers] = [native, carrier, new Float64Array()];
    for (const waiter of waiting) {
      const token = waiter.begin(native, carrier.at());
      if (token !== undefined) this.#waiters.set(token, waiter); // always: it has waited before
    }
    carrier.giveUp?.();
    this.#settle();
  }

  #endIfDrained() {
    if (this.#closed === undefined || this.#waiters.size > 0 || this.#carrier.isBusy || this.#native === undefined) return;
    if (!this.#hasGivenBack && this.#carrier.drain !== undefined) {
      this.#hasGivenBack = true;
      return this.#carrier.drain();
    }
    this.#carrier.end?.();
    this.#native.free();
    this.#native = /** @type {any} */ (undefined);
    this.#onDrained();
  }
}

/**
 * An answer that says what has happened.
 *
 * @type {(answer: { degraded?: string }) => void}
 */
function certain({ degraded }) {
  if (degraded !== undefined) throw coded("UNAVAILABLE", degraded);
}

/**
 * The options of a limiter, whose deadline is this one by default.
 *
 * @type {(options: unknown, byDefault: string) => { name?: string, prefix: string, deadlineUs: number }}
 */
export function farOptions(options, byDefault) {
  const { policy, prefix = "", deadline = byDefault } = known("options", "INVALID_OPTION", options, ["policy", "prefix", "deadline"]);
  requireText("options.policy", "INVALID_OPTION", policy, true);
  requireText("options.prefix", "INVALID_OPTION", prefix);
  const deadlineUs = spanUs("options.deadline", deadline);
  requireWhole("options.deadline", "INVALID_OPTION", deadlineUs, 1_000, 3_600_000_000);
  return { name: policy, prefix, deadlineUs };
}

/** @type {(key: unknown) => void} */
function requireKey(key) {
  if (typeof key !== "string") throw wrongType("key", "INVALID_KEY", key, "a string");
  if (key.length > MOST_KEY) throw asError(longKey(utf8.encode(key).length));
  requireWellFormed("key", "INVALID_KEY", key);
}

/**
 * Whether the caller gave a time.
 *
 * @type {(given: any) => boolean}
 */
const isTimed = (given) => given !== undefined && Object.hasOwn(given, "now") && given.now !== undefined;

const closed = () => coded("FREED", "the limiter has been closed");

/** Limits of a call are for a limiter in memory, which remembers them. */
const [CHECK, REQUEST, ACQUISITION, WAIT, RUN, OPTIONS, RENEWAL, BUDGET, REPORT] = [
  calls.CHECK, calls.REQUEST, calls.ACQUISITION, calls.WAIT, calls.RUN, calls.OPTIONS, calls.RENEWAL, calls.BUDGET, calls.REPORT,
].map((fields) => calls.changed(fields, ["limits"]));

/** A key of more characters has more bytes than a key may have. */
const MOST_KEY = 512;

const utf8 = new TextEncoder();
