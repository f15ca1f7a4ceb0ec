// Reads what callers give.
import { ArgumentError, Limiter } from "tidegate";

/** @import { ErrorCode, LimiterError } from "tidegate" */

/**
 * These fields of an object, which may be inherited, but not from `Object.prototype`: what another library puts there
 * decides nothing.
 *
 * @type {(object: any, names: string[]) => Record<string, any>}
 */
export function fieldsOf(object, names) {
  /** @type {Record<string, any>} */
  const found = { __proto__: null };
  for (const name of names) {
    const isForeign = name in Object.prototype && !Object.hasOwn(object ?? {}, name);
    found[name] = isForeign ? undefined : object?.[name];
  }
  return found;
}

/**
 * The text by which a key is counted. A string and another value have different texts, and the limiter reads no text as an address.
 * Most strings stay as they are: to put a mark before each would take as long as half a decision.
 *
 * @type {(key: unknown) => string}
 */
export function keyText(key) {
  if (typeof key === "string") {
    const text = shortText(key);
    const isMarked = text === "" || text.startsWith(MARK) || text.startsWith("ip:");
    return isMarked ? `${MARK}${text}` : text;
  }
  requirePrimitive("key", key);
  return `${MARK}${typeof key}:${shortText(String(key))}`;
}

const MARK = "=";

/**
 * Refuses a key that has no text of its own.
 *
 * @type {(field: string, key: unknown) => void}
 */
export function requirePrimitive(field, key) {
  if ((typeof key !== "object" || key === null) && typeof key !== "function" && typeof key !== "symbol") return;
  throw invalidKey(field, typeof key === "object" ? "an object" : `a ${typeof key}`);
}

/**
 * An error of the package. Its declaration lets nobody else make one.
 *
 * @type {(type: typeof LimiterError, code: ErrorCode, message: string) => LimiterError}
 */
export const failure = (type, code, message) => new /** @type {any} */ (type)(code, message);

/** @type {(field: string, found: string) => Error} */
export function invalidKey(field, found) {
  return failure(ArgumentError, "INVALID_KEY", `\`${field}\`: expected a string or a number, found ${found}`);
}

/** Timers know no more, which is 24 days. */
export const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** As much as Node takes in all headers of a request: a hash of megabytes would hold up the event loop. */
const MOST_TEXT = 16_384;
/** The core's keys have at most 512 bytes, and a character has up to 3. */
const MOST_CHARACTERS = 160;
const HEAD_CHARACTERS = 128;
/** @type {(text: string) => string} */
const sha256 = /** @type {any} */ (Limiter)[Symbol.for("tidegate.sha256")];

/**
 * A text as the core takes it. A long text is replaced by its beginning and its hash, which together exceed every short text.
 *
 * @type {(text: string, field?: string) => string}
 */
export function shortText(text, field = "key") {
  if (text.length <= MOST_CHARACTERS) return text.isWellFormed() ? text : text.toWellFormed();
  requireNoLonger(field, text);
  const wellFormed = text.toWellFormed();
  return `${wellFormed.slice(0, HEAD_CHARACTERS)}#${sha256(wellFormed)}`.toWellFormed();
}

/**
 * Refuses a text that is too long before it is copied or read.
 *
 * @type {(field: string, text: unknown) => void}
 */
export function requireNoLonger(field, text) {
  if (typeof text !== "string" || text.length <= MOST_TEXT) return;
  throw failure(ArgumentError, "INVALID_KEY", `\`${field}\`: expected at most ${MOST_TEXT} characters, found ${text.length}`);
}

/** @type {(field: string, value: unknown, least?: number) => number} */
export function requireNumber(field, value, least = -Infinity) {
  if (typeof value === "number" && Number.isFinite(value) && value >= least) return value;
  throw invalid(field, `a finite number${least === -Infinity ? "" : ` of at least ${least}`}`, value);
}

/** @type {(field: string, value: any, least: number, most?: number) => number} */
export function requireWhole(field, value, least, most = 2 ** 50) {
  if (Number.isInteger(value) && value >= least && value <= most) return value;
  throw invalid(field, `a whole number from ${least} to ${most}`, value);
}

/** @type {(field: string, expected: string, found: unknown) => Error} */
export function invalid(field, expected, found) {
  return failure(ArgumentError, "INVALID_OPTION", `\`${field}\`: expected ${expected}, found ${shown(found)}`);
}

/**
 * Gives a class methods of theirs that are not here: a call says why, and what to use.
 *
 * @type {(holder: object, reasons: Record<string, string>, how?: { isAsync?: boolean }) => void}
 */
export function defineAbsent(holder, reasons, { isAsync = false } = {}) {
  for (const [name, reason] of Object.entries(reasons)) {
    const fail = () => { throw failure(ArgumentError, "INVALID_REQUEST", `\`${name}\` is not here, ${reason}`); };
    const value = isAsync ? async () => fail() : fail;
    Object.defineProperty(holder, name, { __proto__: null, value, writable: true, configurable: true });
  }
}

const MOST_SHOWN = 100;

/** @type {(value: unknown) => string} */
function shown(value) {
  let text = "an object"; // one that no text can be made of
  try {
    text = typeof value === "string" ? JSON.stringify(value.slice(0, MOST_SHOWN + 1)) : String(value);
  } catch {}
  if (typeof value === "bigint") text += "n";
  return text.length > MOST_SHOWN ? `${text.slice(0, MOST_SHOWN - 1)}…` : text;
}

/** The clock of one limiter. When the real clock goes back, this clock goes on from its last reading, so windows last their span. */
export class Clock {
  #lastUs = 0;
  #aheadUs = 0;

  /** Microseconds. */
  now() {
    const realUs = Math.floor(Date.now() * 1000);
    let nowUs = realUs + this.#aheadUs;
    if (nowUs < this.#lastUs) {
      this.#aheadUs = this.#lastUs - realUs;
      nowUs = this.#lastUs;
    }
    // the core refuses times after this, so the clock need not go on from them
    if (nowUs < END_OF_TIME_US) this.#lastUs = nowUs;
    return nowUs;
  }

  /** How far this clock is ahead of the real one. */
  get aheadUs() {
    return this.#aheadUs;
  }
}

/** The year 2112. */
const END_OF_TIME_US = 2 ** 52;
