// Answers of Redis. If Redis has not decided, the policy's `on_error` has, and an answer has no numbers.
import { addOptional, addSoft, isDenied, readAnswer, readLimits, readReservation } from "../answer.js";
import { ONLY_NOW, callOptions } from "../call.js";
import { coded, define } from "../errors.js";
import { requireUnits } from "../input.js";

/** @import * as declared from "../redis.js" */
/** @import { Source as Read } from "../answer.js" */
/** @typedef {Read & { degraded?: string }} Source */
/** @typedef {{ limiter: Pick<declared.RedisLimiter, "renew" | "release">, key: string, cost: number, refund: Refund }} Origin */
/** @typedef {(atUs: number, granted: number, units: number, now: number | undefined) => Promise<declared.Answer>} Refund */

const AT = 4;

/** @type {(source: Source) => any} */
export function decisionOf(source) {
  const { numbers, granted, isShadow } = source;
  if (source.degraded !== undefined) return degradedOf(source);
  const decision = {
    allowed: granted || isShadow,
    limit: numbers[0],
    remaining: numbers[1],
    retryAfterUs: numbers[2],
    resetAfterUs: numbers[3],
  };
  if (isDenied(numbers, granted)) define(decision, "denied", true);
  addSoft(decision, numbers, granted, isShadow);
  return decision;
}

/** @type {(source: Source) => any} */
export function answerOf(source) {
  if (source.degraded === undefined) return readAnswer(source);
  const answer = degradedOf(source);
  if (source.lease !== undefined) define(answer, "lease", source.lease);
  return answer;
}

/** @type {(source: Source) => any} */
export function reservationOf(source) {
  if (source.degraded === undefined) return readReservation(source);
  const answer = degradedOf(source);
  define(answer, "id", source.lease);
  return answer;
}

/** @type {(source: Source) => any} */
const degradedOf = ({ granted, isShadow, degraded }) => ({ allowed: granted || isShadow, degraded });

/** A request that was decided. */
export class RedisGrant {
  allowed;
  #limiter;
  #key;
  #atUs;
  /** The units that the request took and has not given back. */
  #cost;
  #refund;
  /** Whether the lease, if there is one, may be held. */
  #holds;

  /** @param {Source} source @param {Origin} origin */
  constructor(source, { limiter, key, cost, refund }) {
    const { numbers, granted, isShadow, names, lease, degraded } = source;
    this.allowed = granted || isShadow;
    this.#limiter = limiter;
    this.#key = key;
    this.#atUs = numbers[AT];
    this.#refund = refund;
    this.#holds = granted && lease !== undefined;
    this.#cost = granted && degraded === undefined ? cost : 0;
    if (degraded !== undefined) {
      define(this, "degraded", degraded);
      if (lease !== undefined) define(this, "lease", lease);
      this.#holds = lease !== undefined; // Redis may have written it nevertheless
      return;
    }
    define(this, "limit", numbers[0]);
    define(this, "remaining", numbers[1]);
    define(this, "retryAfterUs", numbers[2]);
    define(this, "resetAfterUs", numbers[3]);
    define(this, "atUs", numbers[AT]);
    define(this, "limits", readLimits(numbers, names));
    addOptional(this, source);
  }

  /** @type {declared.Grant["refund"]} */
  async refund(units, options) {
    const { now } = callOptions("options", options, ONLY_NOW);
    const granted = this.#cost;
    if (units === undefined) units = granted;
    requireUnits("units", units, 0, granted);
    if (units === 0) return 0;
    this.#cost -= units; // at once, so that a second call meanwhile cannot give the same units back
    const { degraded } = await this.#refund(this.#atUs, granted, units, options?.now === undefined ? undefined : now);
    if (degraded !== undefined) throw coded("UNAVAILABLE", degraded); // they are not given back again: Redis may have taken them
    return units;
  }

  /** @type {declared.Grant["renew"]} */
  async renew(options = {}) {
    const { lease } = /** @type {any} */ (this);
    if (lease === undefined) throw coded("INVALID_REQUEST", "`lease`: expected a grant of a lease, found one without");
    return this.#limiter.renew(this.#key, lease, options);
  }

  /** @type {declared.Grant["release"]} */
  async release(options = {}) {
    if (!this.#holds) return false;
    this.#holds = false;
    const { lease } = /** @type {any} */ (this);
    const { degraded, live = false } = await this.#limiter.release(this.#key, lease, options);
    if (degraded === undefined) return live;
    this.#holds = true;
    throw coded("UNAVAILABLE", degraded);
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
