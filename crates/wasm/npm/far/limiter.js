// A limiter whose states are elsewhere: in Redis, or in Durable Objects.
import { NativeAuthority as Native, longKey } from "#native";
import { readAdmission, readExplanation } from "../answer.js";
import { defineAbsent } from "../absent.js";
import * as calls from "../call.js";
import { asError, caught, certain, closed, define } from "../errors.js";
import {
  MOST_WAITERS, admissionOptions, headerValue, held, requestFacts, requireFunction, requireKeyText, requireUnits,
} from "../input.js";
import { prepared } from "../prepared.js";
import { AsyncGrant } from "../grant.js";
import { running } from "../running.js";
import { blockUs, spanUs } from "../span.js";
import { clock } from "../time.js";
import { LOOK_AGAIN_US, Waiting } from "../waiting.js";
import { answerOf, decisionOf, reservationOf } from "./answer.js";
import { Desk } from "./desk.js";

/** @import * as declared from "../redis.js" */
/** @import { Call, FieldList } from "../call.js" */
/** @import { Refund } from "../grant.js" */
/** @import { Source } from "./answer.js" */
/** @import { Carry, Make } from "./desk.js" */
/** @typedef {(read: Call) => (native: Native) => number | undefined} Prepare checks what an operation is given, and then begins it: returns its token, or nothing if its answer is there */

export class FarLimiter {
  #desk;
  #defaultCost;
  #sharesStates;
  /**
   * The names of the headers in which keys are found.
   *
   * @type {string[] | undefined}
   */
  #keyHeaders;
  /** The requests of `waitFor`. */
  #waiting;

  #fieldsOf;

  /**
   * @param {import("../index.js").AnyPolicy} policy
   * @param {Make} make
   * @param {Carry} carry
   * @param {{ attend?: import("../waiting.js").Attend, isUntimed?: boolean }} [how]
   */
  constructor(policy, make, carry, { attend, isUntimed = false } = {}) {
    /** @type {(fields: FieldList) => FieldList} */
    this.#fieldsOf = isUntimed ? (fields) => UNTIMED.get(fields) ?? fields : (fields) => fields;
    this.#waiting = new Waiting(MOST_WAITERS, LOOK_AGAIN_US, attend);
    this.#desk = new Desk(policy, make, carry);
    const native = this.#desk.inUse();
    this.#defaultCost = native.defaultCost();
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
      const words = this.#desk.native.explained();
      return words === undefined ? answerOf(source) : readExplanation(source, words);
    });
  }

  /** @type {declared.RedisLimiter["waitFor"]} */
  async waitFor(key, options) {
    const read = calls.callOptions("options", options, WAIT);
    requireKey(key);
    this.#desk.inUse();
    const { cost = this.#defaultCost, fields } = read;
    /** @type {(now: number) => Promise<any>} */
    const ask = async (now) => {
      let isOverloaded = false;
      const grant = await this.#decide(key, { ...read, now }, false, () => {
        isOverloaded = this.#desk.native.isOverloaded();
      });
      return isOverloaded ? { allowed: false } : grant; // which was not begun: it keeps its place whatever `on_error` says
    };
    const look = () => this.#desk.look((native) => {
      native.begin(key, clock(), false, 0);
      return { allowed: false, denied: !native.canPass(cost, fields.class, fields.lease, fields.signalPpm, fields.draw) };
    });
    return this.#waiting.wait(key, { ask, look }, read);
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
      renewEveryUs = this.#desk.native.renewEveryUs();
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
      const forUs = blockUs(span);
      return (native) => native.block(forUs);
    });
  }

  /** @type {declared.RedisLimiter["prepare"]} */
  prepare(options, among) {
    const native = this.#desk.inUse();
    const read = prepared(native, options, among);
    this.#keyHeaders ??= caught(() => native.keyHeaders());
    return /** @type {any} */ (read);
  }

  /** @type {declared.RedisLimiter["keyOf"]} */
  keyOf(request) {
    const { header, query, ip } = requestFacts(request);
    const native = this.#desk.inUse();
    const names = (this.#keyHeaders ??= caught(() => native.keyHeaders()));
    const values = names.map((name) => headerValue(name, header(name)));
    return caught(() => native.keyOf(values, query, ip, clock())) ?? readAdmission(native.served());
  }

  /** @type {declared.RedisLimiter["admit"]} */
  async admit(key, options = {}) {
    const { cost, headers = "", reserves = false, isOneOfSeveral = false } = admissionOptions(options);
    requireKeyText(key);
    return this.#desk.wait((native, at) => native.admit(key, cost, headers, reserves, isOneOfSeveral, clock(), at), () => {
      const admission = readAdmission(this.#desk.native.served());
      const degraded = this.#desk.native.degraded();
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
    return this.#desk.size + this.#waiting.size;
  }

  /** @type {declared.RedisLimiter["close"]} */
  close() {
    this.#waiting.close(closed());
    return this.#desk.close();
  }

  [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    return this.close();
  }

  /** @type {(argument: string, given: unknown, fields: FieldList) => Call} */
  #read(argument, given, fields) {
    return calls.callOptions(argument, given, this.#fieldsOf(fields));
  }

  /** @type {(key: string, request: object | undefined, fields: FieldList, acquires: boolean, onAnswer?: () => void) => Promise<any>} */
  async #request(key, request, fields, acquires, onAnswer) {
    return this.#decide(key, this.#read("request", request, fields), acquires, onAnswer);
  }

  /**
   * Decides on a request whose fields were read.
   *
   * @type {(key: string, read: Call, acquires: boolean, onAnswer?: () => void) => Promise<any>}
   */
  #decide(key, read, acquires, onAnswer = () => {}) {
    const { cost = this.#defaultCost, fields: { class: name, lease, signalPpm, draw } } = read;
    /** @type {(source: Source) => AsyncGrant} */
    const make = (source) => {
      onAnswer();
      const { granted, lease, degraded } = source;
      const answer = answerOf(source);
      /** @type {Refund} */
      const refund = (options) => {
        const read = this.#read("options", options, calls.ONLY_NOW);
        const now = read.isTimed ? read.now : undefined;
        return (left, units) => this.#refundGrant(key, answer.atUs, left, units, now);
      };
      const units = granted && degraded === undefined ? cost : 0;
      // without an answer the store may have written the lease nevertheless
      const holds = lease !== undefined && (granted || degraded !== undefined);
      return new AsyncGrant(answer, { limiter: this, key, units, holds, refund });
    };
    return this.#begin(key, read, (native) => native.request(cost, false, acquires, name, lease, signalPpm, draw), make);
  }

  /**
   * Does an operation.
   *
   * @type {(key: string, argument: string, given: any, fields: FieldList, prepare: Prepare, make?: (source: Source) => any) => Promise<any>}
   */
  #ask(key, argument, given, fields, prepare, make) {
    try { // an `async` function would take a second promise, and three more turns
      const read = this.#read(argument, given, fields);
      return this.#begin(key, read, prepare(read), make);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /**
   * Does an operation after which other requests may pass.
   *
   * @type {(key: string, argument: string, given: any, fields: FieldList, prepare: Prepare, make?: (source: Source) => any) => Promise<any>}
   */
  async #operate(key, argument, given, fields, prepare, make) {
    const answer = await this.#ask(key, argument, given, fields, prepare, make);
    this.#waiting.wake(key, this.#sharesStates);
    return answer;
  }

  /**
   * Does an operation whose options were read. The operations that begin before the next turn of the event loop's microtasks share
   * a call to the store.
   *
   * @type {(key: string, read: Call, begin: (native: Native) => number | undefined, make?: (source: Source) => any) => Promise<any>}
   */
  #begin(key, read, begin, make = answerOf) {
    requireKey(key);
    if (read.isTimed) this.#desk.requireTime();
    return this.#desk.wait((native, at) => {
      native.begin(key, read.now, read.isTimed, at);
      return begin(native);
    }, () => make(this.#desk.source()));
  }

  /** @type {(key: string, atUs: number, granted: number, units: number, now?: number) => Promise<declared.Answer>} */
  #refundGrant(key, atUs, granted, units, now) {
    return this.#operate(key, "options", { now }, calls.ONLY_NOW, () => (native) => native.refundGrant(atUs, granted, units));
  }
}

defineAbsent(FarLimiter.prototype);

/** @type {(key: any) => void} */
function requireKey(key) {
  requireKeyText(key);
  if (key.length > MOST_KEY) throw asError(longKey(utf8.encode(key).length));
}

const [CHECK, REQUEST, ACQUISITION, WAIT, RUN, OPTIONS, RENEWAL, BUDGET, REPORT] = [
  calls.CHECK, calls.REQUEST, calls.ACQUISITION, calls.WAIT, calls.RUN, calls.OPTIONS, calls.RENEWAL, calls.BUDGET, calls.REPORT,
].map((fields) => calls.changed(fields, [], { limits: calls.NO_LIMITS }));

/** The same for a limiter that decides at times of its own. */
const UNTIMED = new Map([CHECK, REQUEST, ACQUISITION, OPTIONS, RENEWAL, BUDGET, REPORT, calls.RESERVATION, calls.ONLY_NOW].map((fields) => [
  fields, calls.changed(fields, [], { now: calls.UNNAMED_NOW }),
]));

/** A key of more characters has more bytes than a key may have. */
const MOST_KEY = 512;

const utf8 = new TextEncoder();
