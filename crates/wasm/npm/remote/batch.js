// Gathers the checks that begin together, and asks for them by one call.
import { Away, bodyOf } from "./server.js";

/** @import { Server } from "./server.js" */
/** @typedef {{ text: string, resolve: (answer: any) => void, reject: (error: unknown) => void }} Waiting a check that waits, and its fields in JSON */

/** The most checks that the API takes in a batch, and the most bytes in a body, with room for what is around the checks. */
const [MOST_CHECKS, MOST_BYTES] = [1_000, 262_144 - 100];

/** The errors of a batch that may be those of one check in it. A batch is valid as a whole or takes nothing. */
const OF_ONE = ["INVALID_KEY", "INVALID_REQUEST", "COST_EXCEEDS_CAPACITY"];

const PATH = "/v1/check";

export class Batch {
  #server;
  /** @type {Waiting[]} */
  #waiting = [];

  /** @param {Server} server */
  constructor(server) {
    this.#server = server;
  }

  /**
   * The server's answer to a check, in JSON. Checks that begin before the next turn of the microtasks share a call. So in a Worker no call
   * belongs to two of its requests, of which one could end the other's.
   *
   * @type {(fields: Record<string, unknown>) => Promise<any>}
   */
  ask(fields) {
    return new Promise((resolve, reject) => {
      if (this.#waiting.push({ text: bodyOf(fields), resolve, reject }) === 1) queueMicrotask(() => this.#begin());
    });
  }

  #begin() {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (let from = 0; from < waiting.length;) {
      let [to, bytes] = [from, 0];
      for (; to < waiting.length && to - from < MOST_CHECKS; to++) {
        bytes += 3 * waiting[to].text.length; // the most that UTF-8 takes
        if (bytes > MOST_BYTES && to > from) break;
      }
      this.#send(waiting.slice(from, to), this.#server.end());
      from = to;
    }
  }

  /**
   * Never rejects: each check gets its answer or its error.
   *
   * @type {(checks: Waiting[], end: number) => Promise<unknown>}
   */
  async #send(checks, end) {
    try {
      if (checks.length === 1) return checks[0].resolve(await this.#server.ask({ method: "POST", path: PATH, body: checks[0].text }, end));
      const body = `{"checks":[${checks.map(({ text }) => text).join()}]}`;
      const decisions = decisionsOf(await this.#server.ask({ method: "POST", path: PATH, body }, end), checks.length);
      for (const [place, { resolve }] of checks.entries()) resolve(decisions[place]);
    } catch (/** @type {any} */ error) {
      if (checks.length > 1 && OF_ONE.includes(error?.code)) return this.#sendHalves(checks, end);
      for (const { reject } of checks) reject(error);
    }
  }

  /**
   * Looks for the check that is wrong. The server has taken nothing.
   *
   * @type {(checks: Waiting[], end: number) => Promise<unknown>}
   */
  #sendHalves(checks, end) {
    const middle = checks.length >> 1;
    return Promise.all([this.#send(checks.slice(0, middle), end), this.#send(checks.slice(middle), end)]);
  }
}

/** @type {(answer: any, count: number) => any[]} */
function decisionsOf(answer, count) {
  const decisions = typeof answer === "object" && answer !== null && Object.hasOwn(answer, "decisions") ? answer.decisions : undefined;
  if (Array.isArray(decisions) && decisions.length === count) return decisions;
  throw new Away(`server: expected ${count} decisions, found another answer`);
}
