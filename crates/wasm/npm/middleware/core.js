// What all adapters share. An adapter says where its framework has the parts of a request, and how it answers.
import { MemoryStore } from "./store.js";

/** @import { Admission, Limiter, MiddlewareOptions, Store } from "./options.js" */
/** @typedef {{ header: (name: string) => string | undefined, query: string, ip?: string }} Facts */
/** @typedef {0 | 1 | 2} End 0 if a response came whole, 1 if it broke off, 2 if there was none */
/** @typedef {{ answered: (status: number, header: (name: string) => unknown) => boolean, push: (bytes: Uint8Array) => void, finish: (end: End) => number, free: () => void }} Meter */
/** @typedef {{ begin: (units: number) => Meter }} Metering */
/** @typedef {{ renewUntil: number, meter?: Meter, done: (end: End) => void }} Held */
/** @typedef {Admission & { held?: Held }} Said */
/** @typedef {(name: string, value: string) => void} AddHeader */

/**
 * Returns a function that decides on a request. `facts` reads `{ header, query, ip }` of the arguments with which the
 * framework calls its middleware.
 *
 * @param {Limiter} limiter
 * @param {MiddlewareOptions | undefined} options
 * @param {(...request: any[]) => Facts} facts
 * @returns {(...request: any[]) => Promise<Said>}
 */
export function limiting(limiter, options = {}, facts) {
  if (typeof limiter?.prepare !== "function") throw new TypeError(`\`limiter\`: expected a Limiter of \`tidegate/toml\`, found ${limiter === null ? "null" : typeof limiter}`);
  const prepared = /** @type {MiddlewareOptions & { metering?: Metering }} */ (limiter.prepare(options));
  const { store = new MemoryStore(limiter), key, cost, ip, headers, onError, metering } = prepared;
  /** @type {(...request: any[]) => Promise<Said>} */
  const decide = async (...request) => {
    const chosen = await key?.(...request);
    const found = chosen === undefined ? limiter.keyOf(read(facts, ip, request)) : keyText(chosen);
    if (typeof found !== "string") return found;
    const units = typeof cost === "function" ? await cost(...request) : cost;
    const said = await store.check(found, metering ? { cost: units, headers, reserves: true } : { cost: units, headers });
    const meter = said.reservation && metering?.begin(said.reservation.units);
    return { ...said, held: said.lease || meter ? hold(store, found, said, meter, onError) : undefined };
  };
  return async (...request) => {
    try {
      return await decide(...request);
    } catch (error) {
      throw asObject(error);
    }
  };
}

/**
 * Frameworks take some thrown values for something else: Express takes `undefined` for success and "route" for a jump.
 *
 * @type {(error: unknown) => object}
 */
function asObject(error) {
  return typeof error === "object" && error !== null ? error : new Error(`the rate limit failed: ${String(error)}`, { cause: error });
}

/**
 * A key that a client could have made of anything. What cannot be a key is an empty one, which is refused.
 *
 * @type {(chosen: unknown) => string}
 */
function keyText(chosen) {
  if ((typeof chosen === "number" && !Number.isNaN(chosen)) || typeof chosen === "bigint") return String(chosen);
  return typeof chosen === "string" && chosen.isWellFormed() ? chosen : "";
}

/** @type {(facts: (...request: any[]) => Facts, ip: MiddlewareOptions["ip"], request: any[]) => Facts} */
function read(facts, ip, request) {
  const found = facts(...request);
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
 * @type {(store: Store, key: string, said: Admission, meter: Meter | undefined, onError: MiddlewareOptions["onError"]) => Held}
 */
function hold(store, key, { lease, reservation }, meter, onError) {
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
      report(onError, error);
      if (isHeld) wait();
    });
  };
  /** @type {Held} */
  const held = {
    renewUntil: soon(),
    meter,
    done(end) {
      if (!isHeld) return;
      isHeld = false;
      clearTimeout(timer);
      const ended = async () => {
        if (meter === undefined || reservation === undefined) return store.release(key, lease?.name ?? "");
        held.meter = undefined;
        const units = meter.finish(end);
        meter.free();
        await store.commit?.(key, reservation.id, units);
      };
      ended().catch((error) => report(onError, error));
    },
  };
  wait();
  return held;
}

/** The time until which the lease of a response is renewed that shows no life: a runtime may drop it without a word. */
export const soon = () => Date.now() + 600_000;

/**
 * Adds headers to an answer. The fields that are lists follow those of other limits.
 *
 * @type {(headers: Admission["headers"], append: AddHeader, set: AddHeader) => void}
 */
export function addHeaders(headers, append, set) {
  for (const [name, value] of headers) (LISTS.includes(name) ? append : set)(name, value);
}

const LISTS = ["ratelimit", "ratelimit-policy"];
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
