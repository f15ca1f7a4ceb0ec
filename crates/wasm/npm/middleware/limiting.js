// A limiter and what its middleware asks it.
import { kindOf } from "./kind.js";
import { MemoryStore, undecided } from "./store.js";

/** @import { Granted } from "./options.js" */
/** @import { Admission, AnyLimiter, KeyOf, MiddlewareOptions, Store } from "./options.js" */
/** @typedef {{ method: string, header: (name: string) => string | undefined, query: string, ip?: string }} Facts */
/** @typedef {0 | 1 | 2} End 0 if a response came whole, 1 if it broke off, 2 if there was none */
/** @typedef {{ answered: (status: number, header: (name: string) => unknown) => boolean, push: (bytes: Uint8Array) => void, finish: (end: End) => number, free: () => void }} Meter */
/** @typedef {{ begin: (units: number) => Meter }} Metering */
/** @typedef {{ renewUntil: number, meter?: Pick<Meter, "answered" | "push">, actual?: number, done: (end: End) => void, drop: () => void }} Held `actual` is the true cost that the handler has said; `drop` ends the renewals alone */
/** @typedef {Admission & { held?: Held, granted?: Granted }} Said */

/** A limiter and what its middleware asks it. */
export class Limiting {
  #limiter;
  #options;
  #facts;
  #among;
  /** @type {Store} */
  #store;
  #metering;

  /**
   * @param {AnyLimiter} limiter
   * @param {MiddlewareOptions} options
   * @param {(...request: any[]) => Facts} facts
   * @param {{ isLast: boolean }} [among] whether it is the last of several
   */
  constructor(limiter, options, facts, among) {
    if (typeof limiter?.prepare !== "function") throw invalidOption(`\`limiter\`: expected a Limiter, a RedisLimiter, a DurableLimiter or a RemoteLimiter, found ${limiter === null ? "null" : typeof limiter}`);
    this.#limiter = limiter;
    this.#options = /** @type {MiddlewareOptions & { key?: KeyOf, store?: Store, metering?: Metering }} */ (limiter.prepare(options, among));
    this.#store = this.#options.store ?? new MemoryStore(limiter);
    this.#metering = this.#options.metering;
    this.#facts = facts;
    this.#among = among;
  }

  /** Whether the true cost is committed once the response has passed. */
  get isMetered() {
    return this.#metering !== undefined;
  }

  /**
   * The key of a request, or the refusal of a request without one.
   *
   * @param {any[]} request
   */
  async keyOf(request) {
    const { key, ip } = this.#options;
    const chosen = await key?.(...request);
    const found = chosen === undefined ? this.#limiter.keyOf(read(this.#facts, ip, request)) : keyText(chosen);
    // the server does not know the client's address, which is no mistake of the client
    if (typeof found !== "string" && found.refusal?.status === 500) this.#tell(new Error(JSON.parse(found.refusal.body).detail));
    return found;
  }

  /**
   * The units that a request takes; `undefined` for the cost of the policy.
   *
   * @param {any[]} request
   */
  async unitsOf(request) {
    const { cost } = this.#options;
    return typeof cost === "function" ? cost(...request) : cost;
  }

  /**
   * Decides on a request, and holds its lease and its reservation.
   *
   * @type {(key: string, units: number | undefined) => Promise<Said>}
   */
  async ask(key, units) {
    const { headers } = this.#options;
    /** @type {Parameters<Store["check"]>[1]} */
    const asked = { cost: units, headers };
    if (this.isMetered) asked.reserves = true;
    if (this.#among !== undefined) asked.isOneOfSeveral = true;
    if (this.#among?.isLast === false) asked.mayComeBack = true;
    const answer = await this.#store.check(key, asked);
    const said = { ...NOTHING, ...answer };
    if (!Array.isArray(said.headers)) throw new TypeError(`\`store\`: expected an answer with an array of \`headers\`, found ${kindOf(answer)}`);
    if (said.degraded !== undefined) this.#tell(undecided(said.degraded));
    else if (Date.now() > (away.get(this.#limiter) ?? Infinity)) {
      away.delete(this.#limiter);
      console.error("tidegate: requests are decided on again");
    }
    const meter = said.reservation && this.#metering?.begin(said.reservation.units);
    return { ...said, held: said.lease || meter ? hold(this.#store, key, said, meter, this.#tell) : undefined };
  }

  /**
   * Takes note of an error. The console is told of an outage once, whichever middleware of the limiter has found it.
   *
   * @type {(error: any) => void}
   */
  #tell = (error) => {
    const { onError } = this.#options;
    if (onError !== undefined || error?.code !== "UNAVAILABLE") return void report(onError, error);
    const isNew = !away.has(this.#limiter);
    away.set(this.#limiter, Date.now() + QUIET_MS);
    if (isNew) console.error(`tidegate: requests are not decided on, so \`on_error\` holds: ${error.message}`);
  };

  /**
   * Gives back what a request was granted. Whether that succeeds does not change the answer.
   *
   * @type {(key: string, said: Said) => Promise<void>}
   */
  async giveBack(key, said) {
    said.held?.drop();
    try {
      await this.#store.giveBack?.(key, said);
    } catch (error) {
      this.#tell(error);
    }
  }
}

/**
 * The limiters that cannot decide, and until when good answers do not end their outage: while one of several masters of Redis is away,
 * good and bad answers alternate.
 *
 * @type {WeakMap<AnyLimiter, number>}
 */
const away = new WeakMap();
const QUIET_MS = 1_000;

/**
 * The fields of an answer, so that what it lacks is not looked for in its prototype.
 *
 * @type {Omit<Admission, "headers"> & { headers: any }}
 */
const NOTHING = { headers: undefined, refusal: undefined, lease: undefined, reservation: undefined, grant: undefined, remaining: undefined, degraded: undefined };

/**
 * The error of an option that does not fit. It has the code of the package's own errors, which middleware does not load.
 *
 * @type {(message: string) => TypeError}
 */
export const invalidOption = (message) => Object.assign(new TypeError(message), { code: "INVALID_OPTION" });

/** @type {(message: string) => TypeError} */
const invalidCall = (message) => Object.assign(new TypeError(message), { code: "INVALID_REQUEST" });

/**
 * What the handler of a request gets, by its limiters, keys and answers.
 *
 * @type {(passed: { one: Limiting, key: string, said: Said }[]) => Granted}
 */
export function grantedOf(passed) {
  let isBack = false;
  return {
    keys: passed.map(({ key }) => key),
    remaining: Math.min(...passed.map(({ said }) => said.remaining ?? Infinity)),
    commit(actual) {
      if (!Number.isSafeInteger(actual) || actual < 0) throw invalidCall(`\`actual\`: expected a whole number from 0 to ${Number.MAX_SAFE_INTEGER}, found ${String(actual)}`);
      if (!passed.some(({ one }) => one.isMetered)) throw invalidCall("`commit`: expected `actual` or `countIf` in the options of the middleware, found neither");
      for (const { said: { held } } of passed) if (held !== undefined) held.actual = actual;
    },
    async giveBack() {
      if (isBack) return;
      isBack = true;
      for (const { one, key, said } of passed) await one.giveBack(key, said);
    },
  };
}

/**
 * The key that a function of the application has returned. Anything but a text or a number is refused, because a client could have made
 * it: two parameters of one name are an array in some frameworks.
 *
 * @type {(chosen: unknown) => string | Said}
 */
function keyText(chosen) {
  if ((typeof chosen === "number" && !Number.isNaN(chosen)) || typeof chosen === "bigint") return String(chosen);
  if (typeof chosen !== "string") return invalidKey("a string or a number", Number.isNaN(chosen) ? "NaN" : kindOf(chosen));
  return chosen.isWellFormed() ? chosen : invalidKey("well-formed Unicode", "a lone surrogate");
}

/**
 * The refusal of a key that no limiter can be asked about, as a limiter refuses an invalid key.
 *
 * @type {(expected: string, found: string) => Said}
 */
function invalidKey(expected, found) {
  const detail = `\`key\`: expected ${expected}, found ${found}`;
  return {
    headers: [["cache-control", "no-store"], ["content-type", "application/problem+json"]],
    refusal: { status: 400, body: JSON.stringify({ type: "urn:tidegate:invalid-key", title: "Invalid key", status: 400, detail }) },
  };
}

/** @type {(facts: (...request: any[]) => Facts, ip: MiddlewareOptions["ip"], request: any[]) => Omit<Facts, "method">} */
function read(facts, ip, request) {
  const { method: _, ...found } = facts(...request);
  if (ip === undefined) return found;
  /** @type {any} */
  const address = ip(...request);
  // a promise is no address, so nobody will wait for it
  if (typeof address?.then === "function") Promise.resolve(address).catch(() => {});
  return { ...found, ip: address };
}

/**
 * Renews a lease until `done` releases it, or until the time `renewUntil`. `done` commits a reservation, which releases the lease too.
 *
 * @type {(store: Store, key: string, said: Admission, meter: Meter | undefined, tell: (error: unknown) => void) => Held}
 */
function hold(store, key, { lease, reservation }, meter, tell) {
  /** @type {any} Node has `unref` here, browsers have not */
  let timer;
  let isHeld = true;
  const wait = () => {
    if (lease === undefined) return;
    timer = setTimeout(renew, Math.min(Math.max(1, Math.floor(lease.renewEveryUs / 1000)), LONGEST_TIMER_MS));
    timer.unref?.(); // a lease does not keep a process alive
  };
  const renew = () => {
    if (Date.now() > held.renewUntil) return; // the lease ends by its time to live
    const renewed = async () => store.renew(key, lease?.name ?? "");
    renewed().then((live) => live && isHeld && wait(), (error) => {
      tell(error);
      if (isHeld) wait();
    });
  };
  const drop = () => {
    isHeld = false;
    clearTimeout(timer);
    if (held.meter !== undefined) meter?.free();
    held.meter = undefined;
  };
  /** @type {Held} */
  const held = {
    renewUntil: soon(),
    meter,
    actual: undefined,
    drop,
    done(end) {
      if (!isHeld) return;
      isHeld = false;
      clearTimeout(timer);
      const ended = async () => {
        if (meter === undefined || reservation === undefined) return store.release(key, lease?.name ?? "");
        held.meter = undefined;
        const units = held.actual ?? meter.finish(end);
        meter.free();
        await store.commit?.(key, reservation.id, units);
      };
      ended().catch(tell);
    },
  };
  wait();
  return held;
}

/** The time until which the lease of a response is renewed that shows no life: a runtime may drop it without a word. */
export const soon = () => Date.now() + 600_000;

const LONGEST_TIMER_MS = 2 ** 31 - 1;

/**
 * Whatever `onError` does, it ends no process.
 *
 * @type {(onError: MiddlewareOptions["onError"], error: unknown) => Promise<void>}
 */
async function report(onError, error) {
  try {
    if (onError === undefined) console.error("tidegate:", error);
    else await onError(error);
  } catch (another) {
    console.error("tidegate: `onError` failed:", another);
  }
}
