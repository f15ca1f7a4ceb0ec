// Carries questions from WebAssembly to Durable Objects, and replies back, within a deadline.
import { env, waitUntil } from "cloudflare:workers";
import { Objects } from "#objects";
import { instance, recover, whenEnded } from "#worker/recovery";
import { logError } from "#worker/log";

import { coded } from "../errors.js";
import { Fields } from "../fields.js";
import { Silence } from "../silence.js";
import { clock, milliseconds, millisecondsUntil, timer } from "../time.js";

/** @import { NativeAuthority as Native } from "#native" */
/** @import { Heard } from "../far/carrier.js" */
/** @typedef {{ getByName: (name: string) => { ask: (questions: string, policy?: string) => Promise<unknown> } }} Namespace */

export class ObjectsCarrier {
  #native;
  #objects;
  #deadlineUs;
  #heard;
  #hash;
  /** The objects that did not answer in time. */
  #silence;
  #began = instance;
  #underWay = 0;
  /** Whether the log was told that objects do not answer. One that answers ends it. */
  #isTold = false;
  #at = 0;
  /**
   * What lets the operations that wait go on, by their tokens.
   *
   * @type {Map<number, () => void>}
   */
  #turns = new Map();

  /** @param {Native} native @param {Namespace} objects @param {number} deadlineUs @param {Heard} heard */
  constructor(native, objects, deadlineUs, heard) {
    this.#native = native;
    this.#objects = objects;
    this.#deadlineUs = deadlineUs;
    this.#heard = heard;
    this.#hash = Objects.hash(native);
    this.#silence = new Silence(milliseconds(deadlineUs));
  }

  get isOver() {
    return this.#began !== instance;
  }

  get isBusy() {
    return this.#underWay > 0;
  }

  /** Microseconds by a clock that never goes back. */
  at() {
    const now = clock();
    if (now > this.#at) this.#at = now;
    return this.#at;
  }

  requireTime() {
    if (Objects.trustsCallerTime(env)) return;
    throw coded("INVALID_NOW", "`now`: expected no time, because the objects decide at their own; found one. In a test, set the variable `TIDEGATE_TRUST_CALLER_TIME`");
  }

  /**
   * Waits with an operation, in its own request: no request can wait in the name of another one. So each request sends its own questions
   * and has a timer of its own. What it asks before its next microtask shares its calls.
   *
   * @type {(token: number, settled: Promise<any>, waiter: unknown) => Promise<void>}
   */
  async wake(token, settled, waiter) {
    const waits = () => this.#heard.waits(token, waiter);
    const over = settled.then(ignore, ignore);
    await undefined;
    if (!waits()) return; // another operation of its request has let the answers be read
    this.#drive();
    const untilUs = this.at() + this.#deadlineUs;
    while (!this.isOver && waits()) {
      const turn = this.#turn(token, millisecondsUntil(this.at(), untilUs));
      await Promise.race([over, turn.ended]);
      turn.end();
      if (this.isOver || !waits()) break;
      this.#guard(() => Objects.giveUp(this.#native, this.at()));
      this.#drive();
    }
    if (this.isOver) this.#heard.ended();
  }

  /**
   * What ends when the operation of this token must send the next question, when WebAssembly has ended, or after so many milliseconds.
   *
   * @type {(token: number, ms: number) => { ended: Promise<void>, end: () => void }}
   */
  #turn(token, ms) {
    /** @type {PromiseWithResolvers<void>} */
    const { promise: ended, resolve } = Promise.withResolvers();
    const end = () => {
      clearTimeout(turn);
      whenEnded.delete(end);
      if (this.#turns.get(token) === end) this.#turns.delete(token); // another operation may have the token by now
      resolve();
    };
    const turn = timer(end, ms);
    whenEnded.add(end);
    this.#turns.set(token, end);
    return { ended, end };
  }

  /** @param {unknown} error of a call of WebAssembly, which may have ended by it */
  recover(error) {
    recover(error, this.#began);
  }

  /** Ends all that waits without an answer, so that `on_error` decides. */
  giveUp() {
    for (let due = this.#due(); due.length > 0; due = this.#due()) {
      for (const { numbers } of due) this.#leave(numbers);
    }
  }

  /** @param {string} numbers of questions without an answer */
  #leave(numbers) {
    Objects.reply(this.#native, numbers, undefined, undefined, this.at());
  }

  /** Sends what is due, unless the object is silent, and lets the answers be read. */
  #drive() {
    this.#guard(() => {
      for (const { object, numbers, questions } of this.#due()) {
        if (this.#silence.has(object)) this.#leave(numbers);
        else waitUntil(this.#ask(object, numbers, questions));
      }
      this.#goOn();
    });
  }

  #due() {
    const fields = new Fields(Objects.transmit(this.#native, this.#hash, this.at()));
    return Array.from({ length: fields.number() }, () => ({ object: fields.text(), numbers: fields.text(), questions: fields.text() }));
  }

  /**
   * Sends questions to an object, which hears the policy if it does not know its hash. Only WebAssembly reads the questions and replies.
   *
   * @type {(object: string, numbers: string, questions: string) => Promise<void>}
   */
  async #ask(object, numbers, questions) {
    this.#underWay++;
    /** @type {string | undefined} */
    let reply;
    /** @type {unknown} */
    let cause;
    const late = timer(() => this.#silence.begin(object, () => this.#question(object)), milliseconds(this.#deadlineUs));
    try {
      const keys = this.#objects.getByName(object);
      let found = await keys.ask(questions);
      if (found === undefined && !this.isOver) found = await keys.ask(questions, Objects.policy(this.#native));
      if (typeof found === "string") [reply, this.#isTold] = [found, false];
      else throw new TypeError("expected the class `Keys` of `tidegate/durable-objects`, found another one");
    } catch (error) {
      cause = error;
      if (!this.#isTold) logError("a durable object did not answer", error);
      this.#isTold = true;
    }
    clearTimeout(late);
    this.#silence.end(object);
    this.#underWay--;
    this.#guard(() => {
      Objects.reply(this.#native, numbers, reply, cause, this.at());
      this.#goOn();
    });
  }

  /**
   * Asks a silent object whether it is back: the question asks nothing.
   *
   * @type {(object: string) => Promise<unknown>}
   */
  #question(object) {
    const asked = this.#objects.getByName(object).ask("");
    waitUntil(asked.catch(ignore));
    return asked;
  }

  /** Lets the answers be read, and the request go on that must send the next question. */
  #goOn() {
    const next = Objects.next(this.#native);
    this.#heard.answers();
    if (next !== undefined) this.#turns.get(next)?.();
  }

  /**
   * WebAssembly may end by a trap, and then begins anew.
   *
   * @type {(act: () => void) => void}
   */
  #guard(act) {
    if (this.isOver) return;
    try {
      act();
    } catch (error) {
      this.recover(error);
      logError("a limiter failed", error instanceof Error ? error.stack : error);
    }
  }
}

const ignore = () => {};
