// A request that was decided elsewhere: its methods return promises.
import { certain, coded, define, ownField } from "./errors.js";
import { requireUnits } from "./input.js";

/** @import * as declared from "./redis.js" */
/** @typedef {Pick<declared.AsyncLimiter, "renew" | "release">} Holder */
/** @typedef {(options: any) => (left: number, units: number) => Promise<declared.Answer>} Refund checks the options, and then gives back units of those that are left */
/** @typedef {{ limiter: Holder, key: string, units: number, holds: boolean, refund: Refund }} Origin what was asked, and what was got */

/** A request that was decided elsewhere. */
export class AsyncGrant {
  #limiter;
  #key;
  /** The units that the request took and has not given back. */
  #units;
  #refund;
  /** Whether the lease, if there is one, may be held. */
  #holds;

  /** @param {object} answer @param {Origin} origin */
  constructor(answer, { limiter, key, units, holds, refund }) {
    for (const [name, value] of Object.entries(answer)) define(this, name, value);
    this.#limiter = limiter;
    this.#key = key;
    this.#units = units;
    this.#holds = holds;
    this.#refund = refund;
  }

  /** @type {declared.Grant["refund"]} */
  async refund(units, options) {
    const give = this.#refund(options); // first, because a getter may refund, too
    const left = this.#units;
    if (units === undefined) units = left;
    requireUnits("units", units, 0, left);
    if (units === 0) return undefined;
    this.#units -= units; // at once, so that a second call meanwhile cannot give the same units back
    try {
      return certain(await give(left, units));
    } catch (/** @type {any} */ error) {
      if (error?.code !== "UNAVAILABLE") this.#units += units; // if nobody answers, they may have been taken
      throw error;
    }
  }

  /** @type {declared.Grant["renew"]} */
  async renew(options = {}) {
    const lease = ownField(/** @type {any} */ (this), "lease");
    if (lease === undefined) throw coded("INVALID_REQUEST", "`lease`: expected a grant of a lease, found one without");
    return this.#limiter.renew(this.#key, lease, options);
  }

  /** @type {declared.Grant["release"]} */
  async release(options = {}) {
    if (!this.#holds) return false;
    this.#holds = false;
    const { lease } = /** @type {any} */ (this);
    try {
      return ownField(certain(await this.#limiter.release(this.#key, lease, options)), "live") ?? false;
    } catch (error) {
      this.#holds = true;
      throw error;
    }
  }

  /** A lease that cannot be released ends by itself, and a limiter that is closed releases none. */
  async [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    try {
      await this.release();
    } catch (/** @type {any} */ error) {
      if (error?.code !== "FREED" && error?.code !== "UNAVAILABLE") throw error;
    }
  }
}
