// What all adapters share. An adapter says where its framework has the parts of a request, and how it answers.
import { MemoryStore } from "./store.js";

/** @import { Admission, Limiter, MiddlewareOptions, Store } from "./options.js" */
/** @typedef {{ header: (name: string) => string | undefined, query: string, ip?: string }} Facts */
/** @typedef {{ renewUntil: number, done: () => void }} Held */
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
  const { store = new MemoryStore(limiter), key, cost, ip, headers, onError } = limiter.prepare(options);
  /** @type {(...request: any[]) => Promise<Said>} */
  const decide = async (...request) => {
    const chosen = await key?.(...request);
    const found = chosen === undefined ? limiter.keyOf(read(facts, ip, request)) : keyText(chosen);
    if (typeof found !== "string") return found;
    const units = typeof cost === "function" ? await cost(...request) : cost;
    const said = await store.check(found, { cost: units, headers });
    return { ...said, held: said.lease ? hold(store, found, said.lease, onError) : undefined };
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
 * Renews a lease until `done` releases it, or until the time `renewUntil`.
 *
 * @type {(store: Store, key: string, lease: NonNullable<Admission["lease"]>, onError: MiddlewareOptions["onError"]) => Held}
 */
function hold(store, key, { name, renewEveryUs }, onError) {
  /** @type {any} Node has `unref` here, browsers have not */
  let timer;
  let isHeld = true;
  const wait = () => {
    timer = setTimeout(renew, Math.min(Math.max(1, Math.floor(renewEveryUs / 1000)), LONGEST_TIMER_MS));
    timer.unref?.(); // a lease does not keep a process alive
  };
  const renew = () => {
    if (Date.now() > held.renewUntil) return; // the lease ends by its time to live
    const renewed = async () => store.renew(key, name);
    renewed().then((live) => live && isHeld && wait(), (error) => {
      report(onError, error);
      if (isHeld) wait();
    });
  };
  const held = {
    renewUntil: soon(),
    done() {
      if (!isHeld) return;
      isHeld = false;
      clearTimeout(timer);
      const released = async () => store.release(key, name);
      released().catch((error) => report(onError, error));
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
