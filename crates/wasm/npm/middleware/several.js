// Several limiters on one request, all or nothing: they are asked one after another, and if one refuses, the earlier ones get back
// what they granted.
import { Limiting, grantedOf, invalidOption } from "./limiting.js";

/** @import { Admission, AnyLimiter, MiddlewareOptions } from "./options.js" */
/** @import { Facts, Held, Said } from "./limiting.js" */

/** The most limiters of a middleware. */
const MOST = 8;

/** The fields that are lists: those of several limits stand one after another. */
export const LISTS = ["ratelimit", "ratelimit-policy"];

/**
 * Returns a function that decides on a request.
 *
 * @type {(limiters: AnyLimiter[], options: MiddlewareOptions, facts: (...request: any[]) => Facts) => (...request: any[]) => Promise<Said>}
 */
export function limitingTogether(limiters, options, facts) {
  if (typeof options !== "object" || options === null) throw invalidOption(`\`options\`: expected an object, found ${options === null ? "null" : typeof options}`);
  if (limiters.length < 2 || limiters.length > MOST) {
    throw invalidOption(`\`limiter\`: expected a Limiter or a list of 2 to ${MOST}, found a list of ${limiters.length}`);
  }
  options = Object.assign(Object.create(null), options); // so that no option is inherited
  const [keys, stores] = [perLimiter("key", options, limiters), perLimiter("store", options, limiters)];
  if (limiters.some((limiter, place) => limiters.some((other, at) => at < place && other === limiter && keys[at] === keys[place]))) {
    throw invalidOption("`limiter`: expected limiters that differ, or a `key` for each, found one twice");
  }
  const all = limiters.map((limiter, place) =>
    new Limiting(limiter, { ...options, key: keys[place], store: stores[place] }, facts, { isLast: place === limiters.length - 1 }));
  const meters = all.some((one) => one.isMetered);
  if ((options.actual ?? options.countIf) !== undefined && !meters) {
    throw invalidOption("`options`: expected a limiter whose policy has `reservations` beside `actual` and `countIf`, found none");
  }
  return async (...request) => {
    /** @type {string[]} */
    const found = [];
    for (const one of all) {
      const key = await one.keyOf(request);
      if (typeof key !== "string") return key; // nothing is decided yet
      found.push(key);
    }
    const units = await all[0].unitsOf(request);
    /** @type {Said[]} */
    const passed = [];
    const undo = async () => {
      for (const [place, said] of passed.entries()) await all[place].giveBack(found[place], said);
    };
    for (const [place, one] of all.entries()) {
      let said;
      try {
        // beside an estimate, what reserves nothing takes the cost of its policy
        said = await one.ask(found[place], meters && !one.isMetered ? undefined : units);
      } catch (error) {
        await undo();
        throw error;
      }
      if (said.refusal !== undefined) {
        await undo();
        return said;
      }
      passed.push(said);
    }
    const granted = grantedOf(passed.map((said, place) => ({ one: all[place], key: found[place], said })));
    return { headers: headersOf(passed, options.headers), held: heldOf(passed), granted };
  };
}

/**
 * An option of each limiter, out of a list.
 *
 * @type {(name: "key" | "store", options: MiddlewareOptions, limiters: AnyLimiter[]) => any[]}
 */
function perLimiter(name, options, limiters) {
  /** @type {any} */
  const given = options[name];
  if (Array.isArray(given) && given.length === limiters.length) return given;
  if (given === undefined || (name === "key" && typeof given === "function")) return limiters.map(() => given);
  const what = Array.isArray(given) ? `a list of ${given.length}` : `a ${typeof given}`;
  throw invalidOption(`\`options.${name}\`: expected a list with an entry for each of ${limiters.length} limiters, found ${what}`);
}

/**
 * The headers of a response: lists of all limits. An older form has room for one limiter, so it is that of the one that leaves least.
 *
 * @type {(passed: Said[], older: string | undefined) => Admission["headers"]}
 */
function headersOf(passed, older) {
  if (older !== undefined) {
    const counting = passed.filter(({ headers }) => headers.length > 0);
    return counting.reduce((least, one) => (left(one) < left(least) ? one : least), counting[0])?.headers ?? [];
  }
  const all = new Map();
  for (const [name, value] of passed.flatMap(({ headers }) => [...headers])) {
    all.set(name, all.has(name) && LISTS.includes(name) ? `${all.get(name)}, ${value}` : value);
  }
  return [...all];
}

/** @type {(said: Said) => number} */
const left = ({ remaining }) => remaining ?? Infinity;

/**
 * What a request holds under all limiters.
 *
 * @type {(passed: Said[]) => Held | undefined}
 */
function heldOf(passed) {
  const all = passed.flatMap(({ held }) => held ?? []);
  if (all.length < 2) return all[0];
  /** @type {Held[]} */
  let readers = [];
  const meter = {
    /** @type {(status: number, header: (name: string) => unknown) => boolean} */
    answered(status, header) {
      readers = all.filter((one) => one.meter?.answered(status, header));
      return readers.length > 0;
    },
    /** @type {(bytes: Uint8Array) => void} */
    push(bytes) {
      for (const one of readers) one.meter?.push(bytes);
    },
  };
  return {
    get renewUntil() {
      return all[0].renewUntil;
    },
    set renewUntil(time) {
      for (const one of all) one.renewUntil = time;
    },
    get meter() {
      return all.some((one) => one.meter !== undefined) ? meter : undefined;
    },
    done(end) {
      for (const one of all) one.done(end);
    },
    drop() {
      for (const one of all) one.drop();
    },
  };
}
