// Answers, read from the numbers that WebAssembly has written. Literals and class fields define properties, so they
// call no setter of a prototype. `answer.rs` has the order of the numbers.
import { coded, define } from "./errors.js";
import { Fields } from "./fields.js";
import { ONLY_NOW, ReadLimits, callOptions, requireUnits } from "./input.js";

const [AT, FACTOR, LIVE, GRANTED, GRANTED_AT, EXPIRES_AT, RULE, HAS_LEASE, COUNT, HEAD, EACH] =
  [4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 5];

/** The number of the rule of an answer; below 0 for a listed key. */
export const ruleOf = (numbers) => numbers[RULE];

/** Whether the answer is that of a key on the list `deny`. */
export const isDenied = (numbers, granted) => !granted && numbers[RULE] < 0;

/** Whether the name of a lease belongs to the answer. */
export const hasLease = (numbers) => numbers[HAS_LEASE] === 1;

/** What middleware does with a request, from the text of `middleware.rs`. */
export function readAdmission(text) {
  const fields = new Fields(text);
  const [status, body, name, renewEveryUs] = [fields.number(), fields.text(), fields.text(), fields.number()];
  const headers = Array.from({ length: fields.number() }, () => [fields.text(), fields.text()]);
  return {
    headers,
    refusal: status === 0 ? undefined : { status, body },
    lease: name === "" ? undefined : { name, renewEveryUs },
  };
}

/** The answer to an operation. `source` is where the numbers and names are. */
export function readAnswer({ numbers, granted, isShadow, names, lease }) {
  const answer = {
    allowed: granted || isShadow,
    limit: numbers[0],
    remaining: numbers[1],
    retryAfterUs: numbers[2],
    resetAfterUs: numbers[3],
    atUs: numbers[AT],
    limits: readLimits(numbers, names),
  };
  addOptional(answer, numbers, granted, isShadow, lease);
  return answer;
}

/** A request that was decided. If it was granted, its units can come back, and its lease can be released. */
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
  /** The true cost, as far as it is known. */
  #units;
  /** Since the first settlement: the units that the limits have counted, each with its time, the oldest first. */
  #taken;
  /** How many more units the limits can count at a time. */
  #countable;
  /** Whether the lease, if there is one, may be held. */
  #holds;

  constructor({ numbers, granted, isShadow, names, lease }, limiter, key, cost, limits, countable) {
    this.allowed = granted || isShadow;
    this.limit = numbers[0];
    this.remaining = numbers[1];
    this.retryAfterUs = numbers[2];
    this.resetAfterUs = numbers[3];
    this.atUs = numbers[AT];
    this.limits = readLimits(numbers, names);
    addOptional(this, numbers, granted, isShadow, lease);
    this.#limiter = limiter;
    this.#key = key;
    this.#limits = limits;
    this.#countable = countable;
    this.#units = granted ? cost : 0;
    this.#holds = granted && lease !== undefined;
  }

  refund(units, options) {
    const { now } = callOptions("options", options, ONLY_NOW); // first, because a getter may refund, too
    const givenBack = units === undefined ? this.#units : units;
    requireUnits("units", givenBack, 0, this.#units);
    return this.#settle(this.#units - givenBack, now);
  }

  settle(actual, options) {
    const { now } = callOptions("options", options, ONLY_NOW);
    requireUnits("actual", actual, 0);
    this.#settle(actual, now);
  }

  /** Returns the units that it gave back. */
  #settle(actual, now) {
    if (actual === this.#units || !this.allowed) return 0;
    this.#taken ??= [{ atUs: this.atUs, units: this.#units }];
    const own = this.#options({ now });
    const givenBack = actual > this.#units ? this.#take(actual - this.#units, own) : this.#giveBack(actual, own);
    this.#units = actual;
    return givenBack;
  }

  #take(units, options) {
    const counted = Math.min(units, this.#countable(options.now)); // more would take the place of units of others
    const { atUs } = this.#limiter.settle(this.#key, { ...options, grantedAtUs: this.atUs, reserved: 0, actual: units });
    const last = this.#taken[this.#taken.length - 1];
    // Units that share an earlier time come back at most as early as with their own.
    if (last?.atUs === atUs || this.#taken.length === MOST_TIMES) last.units += counted;
    else this.#taken.push({ atUs, units: counted });
    return 0;
  }

  /** The newest units come back first, because a log that is full has forgotten the oldest. */
  #giveBack(actual, options) {
    const givenBack = Math.max(0, this.#counted() - actual);
    for (let left = givenBack; left > 0;) {
      const newest = this.#taken[this.#taken.length - 1];
      const kept = Math.max(0, newest.units - left);
      this.#limiter.settle(this.#key, { ...options, grantedAtUs: newest.atUs, reserved: newest.units, actual: kept });
      left -= newest.units - kept;
      newest.units = kept;
      if (kept === 0) this.#taken.pop();
    }
    return givenBack;
  }

  #counted() {
    return this.#taken.reduce((sum, { units }) => sum + units, 0);
  }

  renew(options = {}) {
    if (this.lease === undefined) {
      throw coded("INVALID_REQUEST", "`lease`: expected a grant of a lease, found one without");
    }
    return this.#limiter.renew(this.#key, this.lease, this.#options(options));
  }

  release(options = {}) {
    if (!this.#holds) return false;
    const { live = false } = this.#limiter.release(this.#key, this.lease, this.#options(options));
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
    } catch (error) {
      if (error?.code !== "FREED" && error?.code !== "INVALID_REQUEST") throw error;
    }
  }

  /** The options of an operation under the limits of the grant. */
  #options(options) {
    return this.#limits === undefined ? options : { ...options, limits: new ReadLimits(this.#limits) };
  }
}

/** The most times that a grant remembers. */
const MOST_TIMES = 16;

function readLimits(numbers, names) {
  const count = numbers[COUNT];
  if (count === 1) return [readLimit(numbers, HEAD, names[0])];
  return Array.from({ length: count }, (_, place) => readLimit(numbers, HEAD + EACH * place, names[place]));
}

function readLimit(numbers, at, name) {
  return {
    name,
    allowed: numbers[at] === 1,
    limit: numbers[at + 1],
    remaining: numbers[at + 2],
    retryAfterUs: numbers[at + 3],
    resetAfterUs: numbers[at + 4],
  };
}

function addOptional(answer, numbers, granted, isShadow, lease) {
  if (isDenied(numbers, granted)) define(answer, "denied", true);
  if (lease !== undefined) define(answer, "lease", lease);
  if (numbers[LIVE] >= 0) define(answer, "live", numbers[LIVE] === 1);
  if (numbers[FACTOR] >= 0) {
    const factor = numbers[FACTOR] / 2 ** 32; // exact
    define(answer, "factor", isShadow ? 0 : factor);
    if (isShadow) define(answer, "wouldFactor", factor);
  }
  if (numbers[GRANTED] >= 0) {
    const [granted, grantedAtUs, expiresAtUs] = [numbers[GRANTED], numbers[GRANTED_AT], numbers[EXPIRES_AT]];
    define(answer, "budget", { granted, grantedAtUs, expiresAtUs });
  }
  if (isShadow) define(answer, "wouldAllow", granted);
}
