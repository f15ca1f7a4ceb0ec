// Who waits for an answer of WebAssembly, which says what to send and reads what comes back; a carrier sends it.
import { NativeAuthority as Native, moduleMemory } from "#native";
import { hasLease, ruleOf } from "../answer.js";
import { asError, caught, closed } from "../errors.js";
import { readPolicy } from "../reading.js";

/** @import { Source } from "./answer.js" */
/** @import { Carrier, Heard } from "./carrier.js" */
/** @typedef {(text: string, isWritten: boolean) => Native} Make reads the policy */
/** @typedef {(native: Native, heard: Heard) => Carrier} Carry */
/** @typedef {(native: Native, at: number) => number | undefined} Begin begins an operation, and returns its token; `undefined` if it needs nobody */
/** @typedef {{ resolve: (answer: any) => void, reject: (error: unknown) => void, read: () => any, begin: Begin }} Waiter */

/** What the bits say that WebAssembly hands over with an answer. */
const [PASSES, DEGRADED, FAILED] = [1, 2, 4];

export class Desk {
  /** @type {Native} */
  #native;
  /** @type {Carrier} */
  #carrier;
  #make;
  #isShadow;
  /**
   * The callers that wait, by the tokens of their operations.
   *
   * @type {Map<number, Waiter>}
   */
  #waiters = new Map();
  /** What the last answer says, in bits. */
  #says = 0;
  /** A view of the module's memory, which its growth detaches. It is then made anew. */
  #numbers = new Float64Array();
  /**
   * The names of the limits of each rule, as those of a `Limiter`.
   *
   * @type {Map<number, string[]>}
   */
  #names = new Map();
  /** @type {Promise<void> | undefined} */
  #closed;
  #onDrained = () => {};
  /** Whether the store was asked to take back what this process holds. */
  #hasGivenBack = false;

  /** @param {import("../index.js").AnyPolicy} policy @param {Make} make @param {Carry} carry */
  constructor(policy, make, carry) {
    /** @type {Heard} */
    const heard = {
      answers: () => this.#settle(),
      waits: (token, waiter) => this.#waiters.get(token) === waiter,
      failed: (error) => this.#fail(error),
      ended: () => this.#beginAnew(),
    };
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
    this.#isShadow = native.isShadow();
  }

  /** WebAssembly, for an operation. */
  inUse() {
    if (this.#closed !== undefined) throw closed();
    this.#beginAnew();
    return this.#native;
  }

  /** WebAssembly, for what an answer says beside its numbers. */
  get native() {
    return this.#native;
  }

  /** The number of callers that wait. */
  get size() {
    return this.#waiters.size;
  }

  /** Throws if no caller may say the time of an operation. */
  requireTime() {
    this.#carrier.requireTime?.();
  }

  /**
   * What WebAssembly knows without its store.
   *
   * @template T
   * @param {(native: Native) => T} read
   * @returns {T}
   */
  look(read) {
    const native = this.inUse();
    const carrier = this.#carrier;
    try {
      return caught(() => read(native));
    } catch (error) {
      carrier.recover?.(error);
      throw error;
    }
  }

  /**
   * Begins an operation, and waits for its answer.
   *
   * @type {(begin: Begin, read: () => any) => Promise<any>}
   */
  wait(begin, read) {
    /** @type {Waiter | undefined} */
    let waiter;
    /** @type {number | undefined} */
    let token;
    let carrier = this.#carrier;
    const settled = new Promise((resolve, reject) => { // what throws in here rejects
      const native = this.inUse();
      carrier = this.#carrier;
      try {
        token = begin(native, carrier.at());
        waiter = { resolve, reject, read, begin };
        if (token === undefined) this.#give(waiter, carrier);
        else this.#waiters.set(token, waiter);
      } catch (error) {
        carrier.recover?.(error);
        throw asError(error);
      }
    });
    if (token !== undefined) carrier.wake(token, settled, waiter);
    return settled;
  }

  /** @returns {Source} what the last answer is read from */
  source() {
    const native = this.#native;
    if (this.#numbers.length === 0) {
      this.#numbers = new Float64Array(moduleMemory().buffer, native.numbersAddress(), native.numbersLength());
    }
    const [numbers, isShadow, granted] = [this.#numbers, this.#isShadow, (this.#says & PASSES) !== 0];
    if ((this.#says & DEGRADED) !== 0) return { numbers, granted, isShadow, names: [], lease: native.lease(), degraded: native.degraded() };
    const lease = hasLease(numbers) ? native.lease() : undefined;
    return { numbers, granted, isShadow, names: this.#namesOf(ruleOf(numbers)), lease, degraded: undefined }; // an own field, which hides one of a prototype
  }

  /** @type {(rule: number) => string[]} */
  #namesOf(rule) {
    if (rule < 0) return [];
    let names = this.#names.get(rule);
    if (names === undefined) this.#names.set(rule, names = this.#native.limitNames(rule).split("\0"));
    return names;
  }

  /** Takes no operation any more. Resolves once all answers have come. */
  close() {
    if (this.#native !== undefined) this.#beginAnew();
    this.#closed ??= new Promise((resolve) => {
      this.#onDrained = resolve;
    });
    this.#endIfDrained();
    return this.#closed;
  }

  /** Gives the answers to their callers. */
  #settle() {
    const native = this.#native;
    const at = this.#carrier.at();
    for (let token = native.pollAnswer(at); token !== undefined; token = native.pollAnswer(at)) {
      const waiter = this.#waiters.get(token);
      this.#waiters.delete(token);
      if (waiter !== undefined) this.#give(waiter);
    }
    this.#endIfDrained();
  }

  /**
   * Gives the last answer to its caller. One that needed no store comes when the carrier lets it.
   *
   * @type {(waiter: Waiter, carrier?: Carrier) => void}
   */
  #give({ resolve, reject, read }, carrier) {
    this.#says = this.#native.says();
    if ((this.#says & FAILED) !== 0) return reject(asError(this.#native.failure()));
    const answer = read();
    if (carrier?.answered === undefined) resolve(answer);
    else carrier.answered(() => resolve(answer));
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
      try {
        const token = waiter.begin(native, carrier.at());
        if (token === undefined) this.#give(waiter);
        else this.#waiters.set(token, waiter);
      } catch (error) {
        waiter.reject(asError(error));
      }
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
