// What all adapters share. An adapter says where its framework has the parts of a request, and how it answers.
import { Limiting } from "./limiting.js";
import { LISTS, limitingTogether } from "./several.js";

export { soon } from "./limiting.js";

/** @import { Admission, AnyLimiter, Limiters, MiddlewareOptions } from "./options.js" */
/** @import { Facts, Said } from "./limiting.js" */
/** @typedef {(name: string, value: string) => void} AddHeader */

/**
 * Returns a function that decides on a request. `facts` reads `{ header, query, ip }` of the arguments with which the
 * framework calls its middleware.
 *
 * @param {Limiters} limiters
 * @param {MiddlewareOptions | undefined} options
 * @param {(...request: any[]) => Facts} facts
 * @returns {(...request: any[]) => Promise<Said>}
 */
export function limiting(limiters, options = {}, facts) {
  const decide = Array.isArray(limiters) ? limitingTogether(limiters, options, facts) : limitingAlone(/** @type {AnyLimiter} */ (limiters), options, facts);
  return async (...request) => {
    try {
      return await decide(...request);
    } catch (error) {
      throw asObject(error);
    }
  };
}

/** @type {(limiter: AnyLimiter, options: MiddlewareOptions, facts: (...request: any[]) => Facts) => (...request: any[]) => Promise<Said>} */
function limitingAlone(limiter, options, facts) {
  const one = new Limiting(limiter, options, facts);
  return async (...request) => {
    const key = await one.keyOf(request);
    return typeof key === "string" ? one.ask(key, await one.unitsOf(request)) : key;
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
 * Adds headers to an answer. The fields that are lists follow those of other limits.
 *
 * @type {(headers: Admission["headers"], append: AddHeader, set: AddHeader) => void}
 */
export function addHeaders(headers, append, set) {
  for (const [name, value] of headers) (LISTS.includes(name) ? append : set)(name, value);
}
