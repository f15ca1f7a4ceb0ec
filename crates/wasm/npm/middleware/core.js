// What all adapters share. An adapter says where its framework has the parts of a request, and how it answers.
import { Limiting, grantedOf } from "./limiting.js";
import { LISTS, limitingTogether } from "./several.js";

export { soon } from "./limiting.js";

/** @import { Admission, AnyLimiter, Limiters, MiddlewareOptions } from "./options.js" */
/** @import { LimitersOf, Told } from "./options.js" */
/** @import { Facts, Said } from "./limiting.js" */
/** @typedef {(...request: any[]) => Promise<Said>} Decide */
/** @typedef {(name: string, value: string) => void} AddHeader */

/**
 * Returns a function that decides on a request. `facts` reads `{ header, query, ip }` of the arguments with which the
 * framework calls its middleware.
 *
 * @param {Limiters | LimitersOf} limiters
 * @param {MiddlewareOptions | undefined} options
 * @param {(...request: any[]) => Facts} facts
 * @returns {Decide}
 */
export function limiting(limiters, options = {}, facts) {
  /** @type {MiddlewareOptions & { __proto__?: null }} */
  const own = { __proto__: null, ...options };
  const { skip, respond, countPreflight } = own;
  const decide = typeof limiters === "function" ? limitingByChoice(limiters, options, facts) : limitingBy(limiters, options, facts);
  return async (...request) => {
    try {
      if (await skip?.(...request) || (countPreflight !== true && isPreflight(facts(...request)))) return SKIPPED;
      const said = await decide(...request);
      return respond === undefined ? said : await responded(said, respond, request);
    } catch (error) {
      throw asObject(error);
    }
  };
}

/** @type {Said} */
const SKIPPED = { headers: [], refusal: undefined, held: undefined, granted: undefined };

/** The fields by which a server may take a request for one of another method. */
const OVERRIDES = ["x-http-method-override", "x-http-method", "x-method-override"].flatMap((name) => [name, name.replaceAll("-", "_")]);

/**
 * Whether a browser asks if a page may send a request. Such a request is free, so nothing that a server takes for another one may pass
 * for it. The gateway goes by the same rule.
 *
 * @type {(facts: Facts) => boolean}
 */
function isPreflight({ method, header, query }) {
  if (method !== "OPTIONS" || !["origin", "access-control-request-method"].every((name) => header(name) !== undefined)) return false;
  const hasBody = (header("content-length") ?? "0") !== "0" || header("transfer-encoding") !== undefined;
  return !hasBody && !query.includes("_method") && OVERRIDES.every((name) => header(name) === undefined);
}

/** @type {(limiters: Limiters, options: MiddlewareOptions, facts: (...request: any[]) => Facts) => Decide} */
function limitingBy(limiters, options, facts) {
  return Array.isArray(limiters) ? limitingTogether(limiters, options, facts) : limitingAlone(/** @type {AnyLimiter} */ (limiters), options, facts);
}

/**
 * Decides by the limiters that a function chooses. What each of them needs is made when it is chosen first.
 *
 * @type {(choose: LimitersOf, options: MiddlewareOptions, facts: (...request: any[]) => Facts) => Decide}
 */
function limitingByChoice(choose, options, facts) {
  /** @type {WeakMap<object, Decide>} */
  const known = new WeakMap();
  return async (...request) => {
    const limiters = await choose(...request);
    let decide = known.get(limiters);
    if (decide === undefined) {
      decide = limitingBy(limiters, options, facts); // which refuses anything but a limiter
      known.set(limiters, decide);
    }
    return decide(...request);
  };
}

/** @type {(limiter: AnyLimiter, options: MiddlewareOptions, facts: (...request: any[]) => Facts) => Decide} */
function limitingAlone(limiter, options, facts) {
  const one = new Limiting(limiter, options, facts);
  return async (...request) => {
    const key = await one.keyOf(request);
    if (typeof key !== "string") return key;
    const said = await one.ask(key, await one.unitsOf(request));
    return said.refusal === undefined ? { ...said, granted: grantedOf([{ one, key, said }]) } : said;
  };
}

/**
 * Lets the option `respond` change what the client is told. A refusal stays one.
 *
 * @type {(said: Said, respond: NonNullable<MiddlewareOptions["respond"]>, request: any[]) => Promise<Said>}
 */
async function responded(said, respond, request) {
  const { headers, refusal } = said;
  try {
    /** @type {Partial<Told>} */
    const told = { headers, refusal, ...await respond({ headers, refusal }, ...request) };
    const [given, shown] = [told.headers ?? headers, refusal && (told.refusal ?? refusal)];
    return { ...said, headers: shown?.body === refusal?.body ? given : ofOwnBody(given, headers), refusal: shown };
  } catch (error) {
    said.held?.done(2);
    throw error;
  }
}

/**
 * The headers of a body that is not ours. Our body's type does not hold for it, so it needs one of its own.
 *
 * @type {(given: Admission["headers"], ours: Admission["headers"]) => Admission["headers"]}
 */
function ofOwnBody(given, ours) {
  /** @type {(field: readonly [name: string, value: string]) => boolean} */
  const isType = ([name]) => name.toLowerCase() === "content-type";
  const kept = given.filter((field) => !(isType(field) && ours.includes(field)));
  return kept.some(isType) ? kept : [...kept, ["content-type", "text/plain; charset=utf-8"]];
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
 * Adds headers to an answer. The fields that are lists follow those of other limits.
 *
 * @type {(headers: Admission["headers"], append: AddHeader, set: AddHeader) => void}
 */
export function addHeaders(headers, append, set) {
  for (const [name, value] of headers) (LISTS.includes(name) ? append : set)(name, value);
}
