// A limiter that asks a server: the Worker, or `tidegate serve`. It checks what it is given, and sends it over the HTTP API.
import { attend } from "../attending.js";
import { defineAbsent } from "../absent.js";
import * as calls from "../call.js";
import { certain, closed, coded, ownField } from "../errors.js";
import { AsyncGrant } from "../grant.js";
import { MOST_WAITERS, admissionOptions, held, requireFunction, requireKeyText, requireUnits } from "../input.js";
import { running } from "../running.js";
import { blockUs, spanUs } from "../span.js";
import { LOOK_AGAIN_US, Waiting } from "../waiting.js";
import { admissionOf, remoteMiddlewareOptions, unavailable } from "./admission.js";
import { answerOf, decisionOf, explanationOf, renewEveryUs, tookCost } from "./answer.js";
import { Batch } from "./batch.js";
import { remoteOptions } from "./options.js";
import { Away, IS_WORKER, bodyOf, segment } from "./server.js";

/** @import * as declared from "../remote.js" */
/** @import { Call, FieldList, FieldRule } from "../call.js" */
/** @import { Refund } from "../grant.js" */
/** @import { Sent } from "./server.js" */
/** @typedef {Record<string, unknown>} Body */
/** @typedef {Pick<Call, "fields" | "signal">} Read */

export class RemoteLimiter {
  #policy;
  #passes;
  #metering;
  #server;
  #batch;
  /**
   * When each call under way has ended. The calls of a Worker's request that was cancelled never say so.
   *
   * @type {Map<object, number>}
   */
  #ends = new Map();
  /** The requests of `waitFor`. */
  #waiting = new Waiting(MOST_WAITERS, LOOK_AGAIN_US, IS_WORKER ? attend : undefined);
  /** @type {Promise<void> | undefined} */
  #closed;
  #onDrained = () => {};

  /** @param {declared.RemoteLimiterOptions} options */
  constructor(options) {
    const { server, policy, passes, metering } = remoteOptions(options);
    this.#server = server;
    this.#batch = new Batch(server);
    this.#policy = policy;
    this.#passes = passes;
    this.#metering = metering;
  }

  /** @type {declared.RemoteLimiter["check"]} */
  async check(key, options) {
    const read = calls.callOptions("options", options, CHECK);
    const answer = await this.#decide(key, read);
    if (!Object.hasOwn(answer, "lease")) return decisionOf(answer);
    if (answer.allowed) await this.release(key, answer.lease);
    throw coded("NEEDS_LEASE", "the limits on this key hold leases: call `acquire` and `release` instead");
  }

  /** @type {declared.RemoteLimiter["decide"]} */
  async decide(key, request) {
    const read = calls.callOptions("request", request, REQUEST);
    return this.#granted(key, read.cost, await this.#decide(key, read));
  }

  /** @type {declared.RemoteLimiter["peek"]} */
  async peek(key, request) {
    const { cost = 0, fields, signal } = calls.callOptions("request", request, PEEK);
    const ofClass = fields.class === undefined ? "" : `&class=${encodeURIComponent(fields.class)}`;
    return this.#ask(signal, { method: "GET", path: `${this.#path(key)}?cost=${cost}${ofClass}`, repeats: true });
  }

  /** @type {declared.RemoteLimiter["explain"]} */
  async explain(key, request) {
    const read = calls.callOptions("request", request, EXPLANATION);
    const sent = this.#posted("/v1/explain", key, read, { ...wanted(read), lease: read.fields.lease }, true);
    return this.#settle(read.signal, () => this.#server.ask(sent), {}, explanationOf);
  }

  /** @type {declared.RemoteLimiter["waitFor"]} */
  async waitFor(key, options) {
    const read = calls.callOptions("options", options, WAIT);
    const { cost, fields } = read;
    const peek = { cost, class: fields.class };
    this.#place(key); // which must be valid
    const asked = { ...read, signal: undefined }; // a grant that is under way is not lost
    const ask = async () => {
      const grant = this.#granted(key, cost, await this.#decide(key, asked));
      // the server's clock may differ from that of the timers
      return grant.allowed ? grant : { __proto__: null, ...grant, atUs: undefined };
    };
    return this.#waiting.wait(key, { ask, look: () => this.peek(key, peek) }, read);
  }

  /** @type {declared.RemoteLimiter["acquire"]} */
  async acquire(key, request) {
    return this.#acquire(key, request, () => {});
  }

  /** @type {declared.RemoteLimiter["run"]} */
  async run(key, fn, request) {
    requireFunction("fn", fn);
    let everyUs = 0;
    const grant = await this.#acquire(key, request, (json) => {
      everyUs = renewEveryUs(json);
    });
    return running(grant, everyUs, fn);
  }

  /** @type {declared.RemoteLimiter["renew"]} */
  async renew(key, lease, options) {
    const { fields, signal } = calls.callOptions("options", options, RENEWAL);
    const body = bodyOf({ ...this.#place(key), count: fields.count });
    return this.#ask(signal, { method: "PUT", path: `/v1/leases/${named("lease", lease)}`, body, repeats: true }, { lease });
  }

  /** @type {declared.RemoteLimiter["release"]} */
  async release(key, lease, options) {
    const { signal } = calls.callOptions("options", options, OPTIONS);
    const { policy } = this.#place(key);
    const path = `/v1/leases/${named("lease", lease)}?policy=${encodeURIComponent(policy)}&key=${encodeURIComponent(key)}`;
    return this.#woken(key, this.#ask(signal, { method: "DELETE", path }, { lease })); // of an owner it closes one more connection each time
  }

  /** @type {declared.RemoteLimiter["budget"]} */
  async budget(key, lease, wanted) {
    const read = calls.callOptions("wanted", wanted, BUDGET);
    const { wants, grantedAtUs: granted_at_us, left } = read.fields;
    return this.#post("/v1/budget", key, read, { lease: held(lease), wants, granted_at_us, left }, { lease });
  }

  /** @type {declared.RemoteLimiter["report"]} */
  async report(key, report) {
    const read = calls.callOptions("report", report, REPORT);
    const { admitted, suppressed, offeredAtUs: offered_at_us } = read.fields;
    return this.#post("/v1/report", key, read, { admitted, suppressed, offered_at_us });
  }

  /** @type {declared.RemoteLimiter["reserve"]} */
  async reserve(key, request) {
    const read = calls.callOptions("request", request, RESERVATION);
    const { timeToLive, id = unguessable() } = read.fields; // so that a repeat takes nothing more
    if (timeToLive !== undefined) spanUs("timeToLive", timeToLive); // the server reads it again
    return this.#post("/v1/reservations", key, read, { ...wanted(read), id, time_to_live: timeToLive }, { id }, true);
  }

  /** @type {declared.RemoteLimiter["commit"]} */
  async commit(key, id, actual, options) {
    const read = calls.callOptions("options", options, OPTIONS);
    const path = `/v1/reservations/${named("id", id)}/commit`;
    requireUnits("actual", actual, 0);
    return this.#woken(key, this.#post(path, key, read, { actual }, { id }, true));
  }

  /** @type {declared.RemoteLimiter["refund"]} */
  async refund(key, units, options) {
    const read = calls.callOptions("options", options, REFUND);
    requireUnits("units", units, 1);
    return this.#woken(key, this.#post("/v1/refund", key, read, { units }));
  }

  /** @type {declared.RemoteLimiter["reset"]} */
  async reset(key, options) {
    const { signal } = calls.callOptions("options", options, OPTIONS);
    // it is never sent twice, because a second one would forget what was taken after the first
    return certain(await this.#woken(key, this.#ask(signal, { method: "DELETE", path: this.#path(key) })));
  }

  /** @type {declared.RemoteLimiter["block"]} */
  async block(key, span, options) {
    const { signal } = calls.callOptions("options", options, OPTIONS);
    blockUs(span); // the server reads it again
    const body = bodyOf({ for: span });
    return certain(await this.#woken(key, this.#ask(signal, { method: "POST", path: `${this.#path(key)}/block`, body })));
  }

  /** @type {declared.RemoteLimiter["prepare"]} */
  prepare(options, among) {
    return remoteMiddlewareOptions(options, among, this.#metering);
  }

  /** @type {declared.RemoteLimiter["keyOf"]} */
  keyOf() {
    return ""; // which is no key, so the server refuses the request
  }

  /** @type {declared.RemoteLimiter["admit"]} */
  async admit(key, options = {}) {
    const { cost, headers, reserves, isOneOfSeveral: one_of_several, mayComeBack: may_come_back } = admissionOptions(options);
    requireKeyText(key);
    const body = bodyOf({ policy: this.#policy, key, cost, headers, reserves, one_of_several, may_come_back });
    const begin = async () => {
      const reply = await this.#server.send({ method: "POST", path: "/v1/admit", body });
      const admission = admissionOf(reply, this.#policy);
      if (admission === undefined) throw this.#server.refusal(reply);
      return admission;
    };
    return this.#counted(begin, (why) => unavailable(this.#passes, why));
  }

  /** @type {declared.RemoteLimiter["giveBack"]} */
  async giveBack(key, { grant, lease, reservation }) {
    if (reservation !== undefined) return void certain(await this.commit(key, reservation.id, 0));
    if (grant !== undefined) certain(await this.#refundGrant(key, grant.atUs, grant.units, grant.units));
    if (lease !== undefined) certain(await this.release(key, lease.name));
  }

  get waiting() {
    this.#forgetCancelled();
    return this.#ends.size + this.#waiting.size;
  }

  /** @type {declared.RemoteLimiter["close"]} */
  close() {
    this.#closed ??= new Promise((resolve) => {
      this.#onDrained = resolve;
    });
    this.#waiting.close(closed());
    const last = Math.max(0, ...this.#ends.values());
    if (last === 0) this.#onDrained();
    else /** @type {any} */ (setTimeout(this.#onDrained, last - performance.now())).unref?.();
    return this.#closed;
  }

  [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    return this.close();
  }

  /**
   * Decides on a request. Requests that begin together share a call, unless a repeat of theirs is to be known.
   *
   * @type {(key: string, read: Call) => Promise<any>}
   */
  #decide(key, read) {
    const fields = { ...this.#place(key), ...wanted(read), lease: read.fields.lease };
    if (read.fields.idempotencyKey !== undefined) return this.#post("/v1/check", key, read, fields);
    return this.#settle(read.signal, () => this.#batch.ask(fields));
  }

  /** @type {(key: string, request: any, heed: (json: any) => void) => Promise<any>} */
  async #acquire(key, request, heed) {
    const read = calls.callOptions("request", request, ACQUISITION);
    const lease = read.fields.lease ?? unguessable(); // so that it can be released even if the answer is lost
    const sent = this.#posted("/v1/leases", key, read, { ...wanted(read), lease });
    /** @type {typeof answerOf} */
    const heeded = (json, policy) => {
      const answer = answerOf(json, policy);
      heed(json);
      return answer;
    };
    return this.#granted(key, read.cost, await this.#settle(read.signal, () => this.#server.ask(sent), { lease }, heeded));
  }

  /** @type {(path: string, key: string, read: Read, fields: Body, own?: Body, repeats?: boolean) => Promise<any>} */
  #post(path, key, read, fields, own, repeats) {
    return this.#ask(read.signal, this.#posted(path, key, read, fields, repeats), own);
  }

  /** @type {(path: string, key: string, read: Read, fields: Body, repeats?: boolean) => Sent} */
  #posted(path, key, { fields: { idempotencyKey } }, fields, repeats = idempotencyKey !== undefined) {
    return { method: "POST", path, body: bodyOf({ ...this.#place(key), ...fields }), idempotencyKey, repeats };
  }

  /** @type {(signal: declared.Signal | undefined, sent: Sent, own?: Body) => Promise<any>} */
  #ask(signal, sent, own) {
    return this.#settle(signal, () => this.#server.ask(sent), own);
  }

  /**
   * The answer to a call. If nobody knows it, `onError` or that of the policy decides, and the answer has the caller's `own` fields: the
   * name of the lease or the reservation.
   *
   * @type {(signal: declared.Signal | undefined, begin: () => Promise<any>, own?: Body, read?: typeof answerOf) => Promise<any>}
   */
  #settle(signal, begin, own = {}, read = answerOf) {
    const answered = async () => {
      const answer = read(await until(signal, begin), this.#policy);
      return ownField(answer, "degraded") === undefined ? answer : { ...answer, ...own };
    };
    return this.#counted(answered, (why) => ({ allowed: this.#passes, degraded: why, ...own }));
  }

  /**
   * What `begin` returns, or `otherwise` if nobody knows what the server has decided.
   *
   * @template T
   * @param {() => Promise<T>} begin
   * @param {(why: string) => T} otherwise
   */
  async #counted(begin, otherwise) {
    if (this.#closed !== undefined) throw closed();
    this.#forgetCancelled();
    const call = {};
    this.#ends.set(call, this.#server.end() + LATE_MS);
    try {
      return await begin();
    } catch (error) {
      if (error instanceof Away) return otherwise(error.message);
      throw error;
    } finally {
      this.#ends.delete(call);
      if (this.#ends.size === 0) this.#onDrained();
    }
  }

  #forgetCancelled() {
    for (const [call, end] of this.#ends) {
      if (end > performance.now()) return;
      this.#ends.delete(call);
    }
  }

  /** @type {(key: string, cost: number | undefined, answer: any) => any} */
  #granted(key, cost, answer) {
    const hasTaken = tookCost(answer);
    /** @type {Refund} */
    const refund = (options) => {
      const read = calls.callOptions("options", options, REFUND);
      if (hasTaken && cost === undefined) throw coded("INVALID_REQUEST", "`units`: expected a request that named its `cost`, found one without");
      return (granted, units) => this.#refundGrant(key, answer.atUs, granted, units, read);
    };
    // without an answer the server may hold the lease nevertheless
    const holds = ownField(answer, "lease") !== undefined && (answer.allowed || ownField(answer, "degraded") !== undefined);
    return new AsyncGrant(answer, { limiter: this, key, units: hasTaken ? cost ?? 0 : 0, holds, refund });
  }

  /** @type {(key: string, atUs: number, granted: number, units: number, read?: Read) => Promise<any>} */
  #refundGrant(key, atUs, granted, units, read = NO_OPTIONS) {
    return this.#woken(key, this.#post("/v1/refund", key, read, { units, granted_at_us: atUs, granted }));
  }

  /**
   * What is answered to an operation after which other requests may pass.
   *
   * @type {(key: string, answered: Promise<any>) => Promise<any>}
   */
  async #woken(key, answered) {
    const answer = await answered;
    this.#waiting.wake(key);
    return answer;
  }

  /**
   * The policy and the key in a body.
   *
   * @type {(key: string) => { policy: string, key: string }}
   */
  #place(key) {
    requireKeyText(key);
    const bytes = utf8.encode(key).length;
    if (bytes === 0 || bytes > MOST_KEY) throw coded("INVALID_KEY", `\`key\`: expected 1 to ${MOST_KEY} bytes, found ${bytes}`);
    return { policy: this.#policy, key };
  }

  /** @type {(key: string) => string} */
  #path(key) {
    const { policy } = this.#place(key);
    return `/v1/keys/${encodeURIComponent(policy)}/${segment("key", "INVALID_KEY", key)}`;
  }
}

/**
 * What a request wants, in the names of the API.
 *
 * @type {(read: Call) => Body}
 */
const wanted = ({ cost, fields }) => ({ cost, class: fields.class, signal_ppm: fields.signalPpm });

/**
 * A lease or a reservation in a path.
 *
 * @type {(field: string, name: any) => string}
 */
function named(field, name) {
  if (held(name, field) === "") throw coded("INVALID_REQUEST", `\`${field}\`: expected 1 to 128 bytes, found 0`);
  return segment(field, "INVALID_REQUEST", name);
}

/**
 * What `begin` returns, unless the caller's signal ends the wait before.
 *
 * @template T
 * @param {declared.Signal | undefined} signal
 * @param {() => Promise<T>} begin
 * @returns {Promise<T>}
 */
function until(signal, begin) {
  if (signal === undefined) return begin();
  return new Promise((resolve, reject) => {
    const end = () => reject(new Away("the caller's signal has ended the call"));
    if (signal.aborted) return end();
    signal.addEventListener("abort", end);
    begin().then(resolve, reject).finally(() => signal.removeEventListener("abort", end));
  });
}

/** How late the timer of a call's deadline may be. */
const LATE_MS = 1_000;

/** A name that nobody can guess. */
const unguessable = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

/** @type {FieldRule} */
const IDEMPOTENCY_KEY = {
  code: "INVALID_REQUEST",
  check(value, { name, code }) {
    if (typeof value === "string" && /^[\x20\x21\x23-\x5b\x5d-\x7e]{1,255}$/.test(value)) return;
    throw coded(code, `\`${name}\`: expected 1 to 255 printable characters of ASCII without quotes and backslashes, found another value`);
  },
};
const ENDS = { limits: calls.NO_LIMITS, signal: calls.SIGNAL };
const ONCE = { ...ENDS, idempotencyKey: IDEMPOTENCY_KEY };
/** The server has a clock of its own, and draws by itself. */
const ITS_OWN = ["now", "draw"];

const CHECK = calls.changed(calls.CHECK, ITS_OWN, ONCE);
const REQUEST = calls.changed(calls.REQUEST, ITS_OWN, ONCE);
const EXPLANATION = calls.changed(calls.REQUEST, ITS_OWN, ENDS);
const WAIT = calls.changed(calls.WAIT, ["draw"], { limits: calls.NO_LIMITS });
const ACQUISITION = calls.changed(calls.ACQUISITION, ITS_OWN, ONCE);
const RESERVATION = calls.changed(calls.RESERVATION, ITS_OWN, ONCE);
const REFUND = calls.changed(calls.OPTIONS, ITS_OWN, ONCE);
const PEEK = calls.changed(calls.REQUEST, [...ITS_OWN, "lease", "signalPpm"], ENDS);
const [OPTIONS, RENEWAL, BUDGET, REPORT] = [calls.OPTIONS, calls.RENEWAL, calls.BUDGET, calls.REPORT].map((fields) => (
  calls.changed(fields, ITS_OWN, ENDS)
));

defineAbsent(RemoteLimiter.prototype);

const NO_OPTIONS = calls.callOptions("options", undefined, OPTIONS);

/** The most bytes of a key. One key of more would make the server refuse a batch. */
const MOST_KEY = 512;

const utf8 = new TextEncoder();
