// Checks types and reads the clock. WebAssembly decides.
import { NativeReporter as Native, requireMemory } from "#native";
import { caught, coded } from "./errors.js";
import { reporterOptions, requireNow, requireNumber } from "./input.js";
import { requireReady } from "./module.js";
import { clock } from "./time.js";

/** @import * as declared from "./index.js" */

export class Reporter {
  /** @type {Native | undefined} */
  #native;

  /** @param {declared.ReporterOptions} options */
  constructor(options) {
    requireReady();
    const { policy, localCap } = reporterOptions(options);
    this.#native = caught(() => {
      requireMemory(policy.length);
      return new Native(policy, localCap);
    });
  }

  /** @type {declared.Reporter["decide"]} */
  decide(units = 1, now = clock()) {
    requireNumber("units", "INVALID_COST", units);
    const native = this.#inUse(now);
    if (caught(() => native.decide(units, now))) return ADMITTED;
    const retryAfterUs = native.cappedForUs();
    if (retryAfterUs === undefined) return SUPPRESSED;
    return Object.freeze({ admitted: false, reason: "capped", retryAfterUs });
  }

  /** @type {declared.Reporter["dueReports"]} */
  dueReports(now = clock()) {
    const native = this.#inUse(now);
    const numbers = caught(() => native.dueReports(now));
    const reports = [];
    for (let at = 0; at < numbers.length; at += 3) {
      reports.push({ offeredAtUs: numbers[at], admitted: numbers[at + 1], suppressed: numbers[at + 2] });
    }
    return reports;
  }

  /** @type {declared.Reporter["apply"]} */
  apply(factor, now = clock()) {
    requireNumber("factor", "INVALID_REQUEST", factor);
    if (!(factor >= 0 && factor <= 1)) {
      const message = `\`factor\`: expected a number from 0 to 1, found ${factor}`;
      throw coded("INVALID_REQUEST", message);
    }
    const native = this.#inUse(now);
    caught(() => native.apply(Math.floor(factor * 2 ** 32), now));
  }

  /** @type {declared.Reporter["free"]} */
  free() {
    this.#native?.free();
    this.#native = undefined;
  }

  [Symbol.dispose ?? Symbol.for("Symbol.dispose")]() {
    this.free();
  }

  /** @type {(now: number) => Native} */
  #inUse(now) {
    requireNow(now);
    if (this.#native === undefined) throw coded("FREED", "the reporter has been freed");
    return this.#native;
  }
}

/** @type {declared.Admitted} */
const ADMITTED = Object.freeze({ admitted: true });
/** @type {declared.Suppressed} */
const SUPPRESSED = Object.freeze({ admitted: false, reason: "suppressed" });
