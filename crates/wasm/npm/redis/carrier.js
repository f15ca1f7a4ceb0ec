// Carries commands from WebAssembly to Redis, and replies back, within a deadline.
import { Buffer } from "node:buffer";

import { Silence } from "../silence.js";
import { afterReads, clock, idleTimer, milliseconds, millisecondsUntil, steadyClock } from "../time.js";
import { questionFor } from "./client.js";

/** @import { NativeAuthority as Native } from "#native" */
/** @import { Heard } from "../far/carrier.js" */
/** @import { Client, Word } from "./client.js" */
/** @typedef {{ call: number, slot: number, master: number, words: Word[], isOver: boolean, timer: ReturnType<typeof setTimeout> | undefined }} Flight a call that waits for its reply */

/** How long a question to a silent master may take: a client keeps it until it is connected again. */
const LOST_MS = 10_000;

/**
 * After so many answers that needed no command the event loop has a turn, so that a program that does nothing but ask cannot keep its
 * timers and the replies of Redis waiting.
 */
const MOST_AT_ONCE = 1_024;

export class RedisCarrier {
  #native;
  #client;
  #deadlineMs;
  #heard;
  #isAwake = false;
  /** The number of answers that needed no command since the event loop had a turn for them. */
  #atOnce = 0;
  /**
   * The answers that wait for that turn.
   *
   * @type {(() => void)[]}
   */
  #held = [];
  /**
   * When WebAssembly wants to be asked for calls without a new operation.
   *
   * @type {number | undefined}
   */
  #dueUs;
  /** @type {any} */
  #timer;
  #hasFailed = false;
  /** The number of calls under way. */
  #underWay = 0;
  /** The masters that did not answer in time. Nothing but a question is sent to them, so the client's own queue stays short. */
  #silence = new Silence(LOST_MS);

  /** WebAssembly does not begin anew. */
  isOver = false;

  /** @param {Native} native @param {Client} client @param {number} deadlineUs @param {Heard} heard */
  constructor(native, client, deadlineUs, heard) {
    this.#native = native;
    this.#client = client;
    this.#deadlineMs = milliseconds(deadlineUs);
    this.#heard = heard;
  }

  get isBusy() {
    return this.#isAwake || this.#underWay > 0 || this.#held.length > 0;
  }

  /** Microseconds by a clock that never goes back. */
  at() {
    return steadyClock();
  }

  /** Looks soon for calls to make. What is asked until then shares them. */
  wake() {
    if (this.#isAwake) return;
    this.#isAwake = true;
    queueMicrotask(() => this.#guard(() => {
      this.#isAwake = false;
      this.#drive();
    }));
  }

  /**
   * Lets an answer go on that needed no command. The answers that come before the event loop has had its turn wait with the one that
   * waits for it.
   *
   * @type {(go: () => void) => void}
   */
  answered(go) {
    if (this.#native.isDueOtherwise()) this.wake();
    if (this.#held.length === 0 && this.#atOnce < MOST_AT_ONCE) {
      this.#atOnce++;
      return go();
    }
    if (this.#held.push(go) === 1) afterReads(() => this.#guard(() => this.#letGo()));
  }

  #letGo() {
    const held = this.#held;
    [this.#held, this.#atOnce] = [[], 0];
    for (const go of held) go();
    this.#heard.answers(); // a limiter that closes has waited for them
  }

  /** Begins calls while there are any, and lets the answers be read. */
  #drive() {
    for (let call = this.#begun(); call !== undefined; call = this.#begun()) {
      this.#underWay++;
      const slot = this.#native.slot(call) ?? 0;
      const master = this.#client.masterOf?.(slot) ?? 0;
      if (this.#silence.has(master)) this.#giveUp(call);
      else this.#carry(call, slot, master);
    }
    this.#wakeLater();
    this.#heard.answers();
  }

  /** Looks for calls when some are due. The timer keeps no process alive. */
  #wakeLater() {
    const dueUs = this.#native.dueUs();
    if (dueUs === this.#dueUs) return;
    clearTimeout(this.#timer);
    this.#dueUs = dueUs;
    if (dueUs === undefined) return;
    this.#timer = idleTimer(() => {
      this.#dueUs = undefined;
      this.wake();
    }, millisecondsUntil(this.at(), dueUs));
  }

  /** Lets Redis take back what this process holds. */
  drain() {
    this.#native.giveBack(clock(), this.at());
    this.wake();
  }

  /** Ends the timers. */
  end() {
    clearTimeout(this.#timer);
    this.#dueUs = undefined;
  }

  #begun() {
    return this.#native.beginCall(clock(), this.at());
  }

  /**
   * Sends the commands of a call until it has ended, or until its deadline has passed.
   *
   * @type {(call: number, slot: number, master: number) => void}
   */
  #carry(call, slot, master) {
    /** @type {Flight} */
    const flight = { call, slot, master, words: [], isOver: false, timer: undefined };
    flight.timer = setTimeout(() => afterReads(() => this.#guard(() => this.#late(flight))), this.#deadlineMs);
    this.#next(flight);
  }

  /** @type {(flight: Flight) => void} */
  #next(flight) {
    const words = this.#words(flight.call);
    if (words === undefined) {
      flight.isOver = true;
      clearTimeout(flight.timer);
      this.#underWay--;
      this.#drive();
      return;
    }
    /** @type {(reply: unknown) => void} */
    const take = (reply) => this.#guard(() => {
      if (flight.isOver) {
        if (!(reply instanceof Error)) this.#silence.end(flight.master);
        return;
      }
      this.#native.reply(flight.call, reply, clock(), this.at());
      this.#next(flight);
    });
    flight.words = words;
    this.#client.send(words, flight.slot).then(take, (error) => take(error instanceof Error ? error : new Error(String(error))));
  }

  /** @type {(flight: Flight) => void} */
  #late(flight) {
    if (flight.isOver) return;
    flight.isOver = true;
    const question = questionFor(flight.words);
    this.#silence.begin(flight.master, () => this.#client.send(question, flight.slot));
    this.#giveUp(flight.call);
    this.#drive();
  }

  /** @type {(call: number) => void} */
  #giveUp(call) {
    this.#underWay--;
    this.#native.giveUp(call, `no answer within ${this.#deadlineMs} ms`, clock(), this.at());
  }

  /**
   * The words of the command that a call sends next; `undefined` if the call has ended. Clients carry texts in less time than bytes.
   *
   * @type {(call: number) => Word[] | undefined}
   */
  #words(call) {
    const bytes = this.#native.command(call);
    if (bytes === undefined) return undefined;
    const all = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
    const words = [];
    let from = 0;
    for (const end of this.#native.ends(call) ?? []) words.push(end < 0 ? all.toString("latin1", from, from = -end) : all.subarray(from, from = end));
    return words;
  }

  /**
   * WebAssembly ends with an exception if it has no memory left. Then it must not be called again.
   *
   * @type {(act: () => void) => void}
   */
  #guard(act) {
    if (this.#hasFailed) return;
    try {
      act();
    } catch (error) {
      this.#hasFailed = true;
      this.#heard.failed(error);
    }
  }
}
