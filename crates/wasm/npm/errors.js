// The errors of the package. Each has a stable `code`.

/** @import { ErrorCode } from "./index.js" */
/** @typedef {{ line: number, column: number, path: string, __proto__?: null }} Place */

/** Any error of this package. */
export class LimiterError extends Error {
  /** @type {ErrorCode} */
  code; // a field defines a property of its own, without calling a setter of a prototype

  /** @param {ErrorCode} code @param {string} message */
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

/** A policy that cannot be read: `line`, `column` and `path` say where. */
export class PolicyError extends LimiterError {
  line;
  column;
  path;

  /** @param {"INVALID_POLICY" | "UNKNOWN_POLICY"} code @param {string} message @param {Place} [place] */
  constructor(code, message, { line, column, path } = NOWHERE) {
    super(code, message);
    this.line = line;
    this.column = column;
    this.path = path;
  }
}

/** An argument of the wrong type or value. */
export class ArgumentError extends LimiterError {}

/** There is no room for what a call needs. */
export class FullError extends LimiterError {}

const NOWHERE = { __proto__: null, line: 0, column: 0, path: "" };

const FULL = ["TABLE_FULL", "TOO_MANY_LIMITS", "TOO_MANY_WAITERS"];
const OTHERS = [
  "NOT_INITIALIZED", "UNAVAILABLE", "UNAUTHORIZED", "FREED", "NO_RANDOMNESS", "NEEDS_LEASE", "LEASE_LOST", "NEVER_GRANTED",
];

/**
 * The error of this code.
 *
 * @type {(code: ErrorCode, message: string, place?: Place) => LimiterError}
 */
export function coded(code, message, place) {
  if (code === "INVALID_POLICY" || code === "UNKNOWN_POLICY") return new PolicyError(code, message, place);
  if (FULL.includes(code)) return new FullError(code, message);
  return OTHERS.includes(code) ? new LimiterError(code, message) : new ArgumentError(code, message);
}

/** The error of a call after `close`. */
export const closed = () => coded("FREED", "the limiter has been closed");

/**
 * A field of an answer, if the answer itself has it: another library may have put one on `Object.prototype`.
 *
 * @template {object} A
 * @template {keyof A} N
 * @param {A} answer
 * @param {N} name
 * @returns {A[N] | undefined}
 */
export const ownField = (answer, name) => (Object.hasOwn(answer, name) ? answer[name] : undefined);

/**
 * An answer that says what has happened: a key must not look blocked when it is not.
 *
 * @template {{ degraded?: string }} A
 * @param {A} answer
 * @returns {Exclude<A, { degraded: string }>}
 */
export function certain(answer) {
  const degraded = ownField(answer, "degraded");
  if (degraded !== undefined) throw coded("UNAVAILABLE", degraded);
  return /** @type {any} */ (answer);
}

/**
 * The error that WebAssembly throws as a text: code, line, column, length of the path, path and message.
 *
 * @type {(thrown: unknown) => unknown}
 */
export function asError(thrown) {
  if (typeof thrown !== "string") return thrown;
  const [code, line, column, length] = thrown.split("\0", 4);
  const rest = thrown.slice(code.length + line.length + column.length + length.length + 4);
  const path = rest.slice(0, Number(length));
  return coded(/** @type {ErrorCode} */ (code), rest.slice(path.length), { line: Number(line), column: Number(column), path });
}

/**
 * Calls WebAssembly, whose errors are texts.
 *
 * @template T
 * @param {() => T} call
 * @returns {T}
 */
export function caught(call) {
  try {
    return call();
  } catch (thrown) {
    throw asError(thrown);
  }
}

/**
 * Gives an object a property of its own, without calling a setter of a prototype.
 *
 * @type {(object: Record<string, any>, name: string, value: unknown) => void}
 */
export function define(object, name, value) {
  if (name in object) Object.defineProperty(object, name, { __proto__: null, value, configurable: true, enumerable: true, writable: true });
  else object[name] = value; // takes a tenth of the time
}

for (const [name, type] of Object.entries({ LimiterError, PolicyError, ArgumentError, FullError })) {
  Object.defineProperty(type.prototype, "name", { __proto__: null, value: name, configurable: true, writable: true });
}
