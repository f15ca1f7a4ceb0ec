// Answers, read from the numbers that WebAssembly has written. Literals and class fields define properties, so they
// call no setter of a prototype. `answer.rs` has the order of the numbers.
import { ONLY_NOW, ReadLimits, callOptions } from "./call.js";
import { coded, define } from "./errors.js";
import { Fields } from "./fields.js";
import { requireUnits } from "./input.js";

/** @import * as declared from "./index.js" */
/** @typedef {ArrayLike<number>} Numbers */
/** @typedef {(key: string, atUs: number, granted: number, units: number, options?: object) => declared.Answer} Refund */
/** @typedef {{ numbers: Numbers, granted: boolean, isShadow: boolean, names: string[], lease?: string }} Source what an answer is read from */

const [AT, FACTOR, EFFECT, RULE, FLAGS, COUNT, HEAD, EACH] = [4, 5, 6, 10, 11, 12, 13, 5];

// The flags of an answer, and of a limit.
const [HAS_LEASE, WARNED, SHADOW, WOULD_REFUSE, DENIED] = [1, 2, 4, 8, 16];
const ALLOWED = 1;

// What an operation did beside deciding: `verdict.rs` has the numbers. A lease or a budget was live if its number is that of
// `LIVE` or `BACK`, a reservation had ended if it is that of `LATE`.
const [LEASE, LIVE, BUDGET, BACK, RESERVED, LATE, PAID] = [1, 2, 3, 5, 6, 8, 9];

/**
 * The number of the rule of an answer; below 0 for a listed key.
 *
 * @type {(numbers: Numbers) => number}
 */
export const ruleOf = (numbers) => numbers[RULE];

/**
 * Whether the name of a lease belongs to the answer.
 *
 * @type {(numbers: Numbers) => boolean}
 */
export const hasLease = (numbers) => (numbers[FLAGS] & HAS_LEASE) !== 0;

/**
 * Whether the answer has flags, which few have. V8 inlines `check` only if it is short, and so is what it calls each time.
 *
 * @type {(numbers: Numbers) => boolean}
 */
export const isFlagged = (numbers) => numbers[FLAGS] !== 0;

/**
 * What middleware does with a request, from the text of `middleware.rs`.
 *
 * @type {(text: string) => declared.Admission}
 */
export function readAdmission(text) {
  const fields = new Fields(text);
  const [status, body, name, renewEveryUs] = [fields.number(), fields.text(), fields.text(), fields.number()];
  const [id, units] = [fields.text(), fields.number()];
  const [atUs, granted, remaining] = [fields.number(), fields.number(), fields.number()];
  /** @type {[name: string, value: string][]} */
  const headers = Array.from({ length: fields.number() }, () => [fields.text(), fields.text()]);
  return {
    headers,
    refusal: status === 0 ? undefined : { status, body },
    lease: name === "" ? undefined : { name, renewEveryUs },
    reservation: id === "" ? undefined : { id, units },
    grant: granted === 0 ? undefined : { atUs, units: granted },
    remaining,
  };
}

/**
 * The answer to an operation. `source` is where the numbers and names are.
 *
 * @type {(source: Source) => declared.Answer}
 */
export function readAnswer(source) {
  const { numbers, granted, isShadow, names } = source;
  const answer = {
    allowed: granted || isShadow,
    limit: numbers[0],
    remaining: numbers[1],
    retryAfterUs: numbers[2],
    resetAfterUs: numbers[3],
    atUs: numbers[AT],
    limits: readLimits(numbers, names),
  };
  if (isMore(source)) addOptional(answer, source);
  return answer;
}

/**
 * An answer, and why it is so in the words of `answer.rs`.
 *
 * @type {(source: Source, words: string) => declared.Explanation}
 */
export function readExplanation(source, words) {
  const [limitName, bound, text] = words.slice(1).split("\0");
  const explanation = { ...readAnswer(source), bound, text };
  if (limitName !== "") define(explanation, "limitName", limitName);
  return explanation;
}

/**
 * The answer about a reservation, whose id is what WebAssembly takes for a lease.
 *
 * @type {(source: Source) => declared.Answer}
 */
export function readReservation({ lease, ...source }) {
  const answer = readAnswer(source);
  define(answer, "id", lease);
  return answer;
}

/**
 * A request that was decided. If it was granted, its units can come back, and its lease can be released.
 *
 * @implements {Omit<declared.Grant, typeof Symbol.dispose | typeof Symbol.asyncDispose>}
 */
export class Grant {
  allowed;
  limit;
  remaining;
  retryAfterUs;
  resetAfterUs;
  atUs;
  limits;
  #limiter;
  #key;
  /** The limits of the call, as text. */
  #limits;
  /** The units that the request took and has not given back. */
  #cost;
  #refundGrant;
  /** Whether the lease, if there is one, may be held. */
  #holds;

  /**
   * @param {Source} source
   * @param {Pick<declared.Limiter, "renew" | "release">} limiter
   * @param {string} key
   * @param {number} cost
   * @param {string | undefined} limits
   * @param {Refund} refundGrant
   */
  constructor(source, limiter, key, cost, limits, refundGrant) {
    const { numbers, granted, isShadow, names, lease } = source;
    this.allowed = granted || isShadow;
    this.limit = numbers[0];
    this.remaining = numbers[1];
    this.retryAfterUs = numbers[2];
    this.resetAfterUs = numbers[3];
    this.atUs = numbers[AT];
    this.limits = readLimits(numbers, names);
    if (isMore(source)) addOptional(this, source);
    this.#limiter = limiter;
    this.#key = key;
    this.#limits = limits;
    this.#refundGrant = refundGrant;
    this.#cost = granted ? cost : 0;
    this.#holds = granted && lease !== undefined;
  }

  /** @type {declared.Grant["refund"]} */
  refund(units, options) {
    const { now } = callOptions("options", options, ONLY_NOW); // first, because a getter may refund, too
    if (units === undefined) units = this.#cost;
    requireUnits("units", units, 0, this.#cost);
    if (units === 0) return undefined;
    const answer = this.#refundGrant(this.#key, this.atUs, this.#cost, units, this.#options({ now }));
    this.#cost -= units;
    return answer;
  }

  /** @type {declared.Grant["renew"]} */
  renew(options = {}) {
    const { lease } = /** @type {declared.Answer} */ (this);
    if (lease === undefined) {
      throw coded("INVALID_REQUEST", "`lease`: expected a grant of a lease, found one without");
    }
    return this.#limiter.renew(this.#key, lease, this.#options(options));
  }

  /** @type {declared.Grant["release"]} */
  release(options = {}) {
    if (!this.#holds) return false;
    const { lease } = /** @type {declared.HeldAnswer} */ (/** @type {declared.Answer} */ (this));
    const { live = false } = this.#limiter.release(this.#key, lease, this.#options(options));
    this.#holds = false;
    return live;
  }

  [Symbol.dispose ?? Symbol.for("Symbol.dispose")]() {
    this.#dispose();
  }

  async [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    this.#dispose();
  }

  /** A limiter that was freed, or whose policy was replaced by one without leases, holds no lease. */
  #dispose() {
    try {
      this.release();
    } catch (/** @type {any} */ error) {
      if (error?.code !== "FREED" && error?.code !== "INVALID_REQUEST") throw error;
    }
  }

  /**
   * The options of an operation under the limits of the grant.
   *
   * @template {object} T
   * @param {T} options
   */
  #options(options) {
    return this.#limits === undefined ? options : { ...options, limits: new ReadLimits(this.#limits) };
  }
}

/** @type {(numbers: Numbers, names: string[]) => declared.LimitAnswer[]} */
function readLimits(numbers, names) {
  const count = numbers[COUNT];
  if (count === 1) return [readLimit(numbers, HEAD, names[0], names[1])];
  return readSeveral(numbers, names, count);
}

/** @type {(numbers: Numbers, names: string[], count: number) => declared.LimitAnswer[]} */
function readSeveral(numbers, names, count) {
  return Array.from({ length: count }, (_, place) => readLimit(numbers, HEAD + EACH * place, names[2 * place], names[2 * place + 1]));
}

/** @type {(numbers: Numbers, at: number, name: string, zoneData: string) => declared.LimitAnswer} */
function readLimit(numbers, at, name, zoneData) {
  const flags = numbers[at];
  const answer = {
    name,
    allowed: (flags & ALLOWED) !== 0,
    limit: numbers[at + 1],
    remaining: numbers[at + 2],
    retryAfterUs: numbers[at + 3],
    resetAfterUs: numbers[at + 4],
  };
  if (flags > ALLOWED || zoneData.length > 0) addOfLimit(answer, flags, zoneData);
  return answer;
}

/** @type {(answer: object, flags: number, zoneData: string) => void} */
function addOfLimit(answer, flags, zoneData) {
  if ((flags & SHADOW) !== 0) define(answer, "shadow", true);
  if ((flags & WARNED) !== 0) define(answer, "warned", true);
  if (zoneData.length > 0) define(answer, "zoneData", zoneData);
}

/**
 * Adds what the key's rule and its limits say beside the decision.
 *
 * @type {(answer: object, numbers: Numbers, granted: boolean, isShadow: boolean) => void}
 */
export function addFlagged(answer, numbers, granted, isShadow) {
  const flags = numbers[FLAGS];
  if ((flags & DENIED) !== 0) define(answer, "denied", true);
  if ((flags & WARNED) !== 0) define(answer, "warned", true);
  if (isShadow) define(answer, "wouldAllow", granted);
  else if ((flags & SHADOW) !== 0) define(answer, "wouldAllow", granted && (flags & WOULD_REFUSE) === 0);
}

/**
 * Whether an answer has more than its decision and its limits. Most have not, and V8 inlines only short functions.
 *
 * @type {(source: Source) => boolean}
 */
const isMore = ({ numbers, isShadow, lease }) =>
  isFlagged(numbers) || numbers[EFFECT] !== 0 || numbers[FACTOR] >= 0 || isShadow || lease !== undefined;

/** @type {(answer: object, source: Source) => void} */
function addOptional(answer, { numbers, granted, isShadow, names, lease }) {
  addFlagged(answer, numbers, granted, isShadow);
  if (lease !== undefined) define(answer, "lease", lease);
  if (numbers[FACTOR] >= 0) {
    const factor = numbers[FACTOR] / 2 ** 32; // exact
    define(answer, "factor", isShadow ? 0 : factor);
    if (isShadow) define(answer, "wouldFactor", factor);
  }
  if (numbers[EFFECT] !== 0) addEffect(answer, numbers, names);
}

/**
 * Adds what an operation did beside deciding.
 *
 * @type {(answer: object, numbers: Numbers, names: string[]) => void}
 */
function addEffect(answer, numbers, names) {
  const [effect, first, second, third] = [numbers[EFFECT], numbers[EFFECT + 1], numbers[EFFECT + 2], numbers[EFFECT + 3]];
  if (effect >= LEASE && effect <= BACK && effect !== BUDGET) define(answer, "live", effect === LIVE || effect === BACK);
  if (effect >= BUDGET && effect <= BACK) define(answer, "budget", { granted: first, grantedAtUs: second, expiresAtUs: third });
  if (effect === RESERVED) {
    define(answer, "reserved", first);
    if (first > 0) define(answer, "expiresAtUs", second);
  } else if (effect > RESERVED && effect <= LATE) {
    define(answer, "charged", first);
    define(answer, "late", effect === LATE);
  }
  const payer = effect === RESERVED ? third : effect === PAID ? first : effect > RESERVED ? second : 0;
  if (payer > 0) define(answer, "paidBy", names[2 * (payer - 1)]);
}
