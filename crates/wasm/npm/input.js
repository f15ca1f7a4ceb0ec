// Checks the types of arguments. WebAssembly checks ranges and contents.
//
// Only own properties are read, and no value is assigned to a property that a prototype could define, so
// that properties which another library puts on `Object.prototype` change no decision. All properties are read
// before WebAssembly is called, because a getter may call the limiter again.
import { coded } from "./errors.js";
import { kindOf } from "./middleware/kind.js";
import { clock, isInMilliseconds } from "./time.js";

/** @import { ErrorCode, Limit } from "./index.js" */
/** @typedef {(path: string, message: string) => Error} Invalid */

/** @type {(field: string, code: ErrorCode, found: unknown, expected: string) => Error} */
export function wrongType(field, code, found, expected) {
  return coded(code, `\`${field}\`: expected ${expected}, found ${kindOf(found)}`);
}

/**
 * The policy as JSON: a string unchanged, an object written.
 *
 * @type {(policy: unknown) => string}
 */
export function policyText(policy) {
  if (typeof policy === "string") {
    if (!requireFileText("policy", policy).trimStart().startsWith("{")) {
      const message = "line 1, column 1: expected JSON, found another text; `toml` of `tidegate/toml` reads TOML";
      throw coded("INVALID_POLICY", message, { __proto__: null, line: 1, column: 1, path: "" });
    }
    return policy;
  }
  if (typeof policy !== "object" || policy === null || Array.isArray(policy)) {
    throw wrongType("policy", "INVALID_POLICY", policy, "an object or a string");
  }
  requirePlain("policy", "INVALID_POLICY", policy);
  return requireShort("policy", "INVALID_POLICY", policyJson(policy, invalidPolicy, "", 0), MOST_POLICY);
}

/** The most requests that may wait in `waitFor`, unless the options say another number. */
export const MOST_WAITERS = 10_000;

/**
 * Checks the text of a policy file, and returns it.
 *
 * @type {(field: string, text: any) => string}
 */
export function requireFileText(field, text) {
  requireType(field, "INVALID_POLICY", text, "string");
  if (!text.isWellFormed()) throw loneSurrogate(text);
  if (A_PATH.test(text)) {
    throw invalidPolicy("", `expected the text of a policy, found the path ${shortened(text)}: read the file first`);
  }
  return requireShort(field, "INVALID_POLICY", text, MOST_POLICY);
}

/** @type {(options: unknown) => { name?: string, maxBytes?: number, maxWaiters: number }} */
export function limiterOptions(options) {
  const names = ["policy", "maxBytes", "maxWaiters"];
  const { policy, maxBytes, maxWaiters = MOST_WAITERS } = known("options", "INVALID_OPTION", options, names);
  requireText("options.policy", "INVALID_OPTION", policy, OPTIONAL);
  requireType("options.maxBytes", "INVALID_OPTION", maxBytes, "number", OPTIONAL);
  requireType("options.maxWaiters", "INVALID_OPTION", maxWaiters, "number");
  requireWhole("options.maxWaiters", "INVALID_OPTION", maxWaiters, 0, Number.MAX_SAFE_INTEGER);
  return { name: policy, maxBytes, maxWaiters };
}

/**
 * The options of middleware, for its only limiter or for one among several.
 *
 * @type {(options: unknown, among?: { isLast: boolean }) => Record<string, any>}
 */
export function middlewareOptions(options, among) {
  const read = known("options", "INVALID_OPTION", options, [
    "key", "cost", "actual", "countIf", "ifUnknown", "ip", "headers", "store", "skip", "respond", "onError", "countPreflight",
  ]);
  const { actual, countIf, ifUnknown } = read;
  if ((actual ?? countIf ?? ifUnknown) !== undefined) {
    read.metering = policyJson({ actual, count_if: countIf, if_unknown: ifUnknown }, invalidOption, "", 0);
  }
  requireText("options.headers", "INVALID_OPTION", read.headers, OPTIONAL);
  for (const name of ["key", "ip", "skip", "respond", "onError"]) requireType(`options.${name}`, "INVALID_OPTION", read[name], "function", OPTIONAL);
  requireType("options.countPreflight", "INVALID_OPTION", read.countPreflight, "boolean", OPTIONAL);
  if (typeof read.cost !== "function" && read.cost !== undefined) {
    requireType("options.cost", "INVALID_OPTION", read.cost, "number");
    requireWhole("options.cost", "INVALID_OPTION", read.cost, 0, Number.MAX_SAFE_INTEGER);
  }
  const calls = ["check", "renew", "release"];
  if (read.metering !== undefined) calls.push("commit");
  if (among?.isLast === false) calls.push("giveBack");
  for (const name of read.store === undefined ? [] : calls) {
    requireType(`options.store.${name}`, "INVALID_OPTION", read.store?.[name], "function");
  }
  return read;
}

/**
 * What middleware says of a request. WebAssembly gets no value of another type, because it would not return from the call.
 *
 * @type {(request: unknown) => { header: (name: string) => unknown, query: string, ip?: string }}
 */
export function requestFacts(request) {
  const { header, query, ip } = known("request", "INVALID_REQUEST", request, ["header", "query", "ip"]);
  requireType("header", "INVALID_REQUEST", header, "function");
  requireType("query", "INVALID_REQUEST", query, "string");
  requireType("ip", "INVALID_OPTION", ip, "string", OPTIONAL);
  return { header, query, ip };
}

/**
 * The value of a header, empty if there is none.
 *
 * @type {(name: string, value: any) => string}
 */
export function headerValue(name, value) {
  requireType(`header ${name}`, "INVALID_REQUEST", value ?? "", "string");
  return value ?? "";
}

/**
 * The options of `admit`.
 *
 * @type {(options: unknown) => { cost?: number, headers?: string, reserves?: boolean, isOneOfSeveral?: boolean, mayComeBack?: boolean }}
 */
export function admissionOptions(options) {
  const names = ["cost", "headers", "reserves", "isOneOfSeveral", "mayComeBack"];
  const { cost, headers, reserves, isOneOfSeveral, mayComeBack } = known("options", "INVALID_REQUEST", options, names);
  requireType("isOneOfSeveral", "INVALID_REQUEST", isOneOfSeveral, "boolean", OPTIONAL);
  requireType("mayComeBack", "INVALID_REQUEST", mayComeBack, "boolean", OPTIONAL);
  requireType("reserves", "INVALID_REQUEST", reserves, "boolean", OPTIONAL);
  requireType("cost", "INVALID_COST", cost, "number", OPTIONAL);
  requireText("headers", "INVALID_OPTION", headers, OPTIONAL);
  return { cost, headers, reserves, isOneOfSeveral, mayComeBack };
}

/**
 * The name of the policy to update to, and when.
 *
 * @type {(options: unknown) => { policy: string | undefined, now: number }}
 */
export function updateOptions(options) {
  const { policy, now = clock() } = known("options", "INVALID_OPTION", options, ["policy", "now"]);
  requireText("options.policy", "INVALID_OPTION", policy, OPTIONAL);
  requireNow(now);
  return { policy, now };
}

/**
 * A policy with only this limit, as JSON, and whether the reporter has a cap.
 *
 * @type {(options: unknown) => { policy: string, localCap: boolean }}
 */
export function reporterOptions(options) {
  const { limit, localCap = true } = known("options", "INVALID_OPTION", options, ["limit", "localCap"]);
  requireText("options.limit", "INVALID_OPTION", limit);
  requireType("options.localCap", "INVALID_OPTION", localCap, "boolean");
  return { policy: `{"limits":[{"algorithm":"suppression","rate":${JSON.stringify(limit)}}]}`, localCap };
}

/**
 * The bytes of a dump.
 *
 * @type {(dump: unknown) => Uint8Array}
 */
export function dumpBytes(dump) {
  const isView = ArrayBuffer.isView(dump);
  if (!isView && !(dump instanceof ArrayBuffer)) throw wrongType("dump", "INVALID_DUMP", dump, "bytes");
  try {
    return isView ? new Uint8Array(dump.buffer, dump.byteOffset, dump.byteLength) : new Uint8Array(dump);
  } catch {
    throw coded("INVALID_DUMP", "`dump`: expected bytes, found an array whose memory is detached");
  }
}

/** What no policy is: a line without the signs that TOML and JSON need, which ends as the name of a file. */
const A_PATH = /^[^\n={]+\.(toml|json)$/;
const MOST_POLICY = 1_048_576;
// The gate's own bound is lower. This bound only keeps a long text from exhausting the memory first.
const MOST_TEXT = 1_000;

/**
 * Checks a number of units.
 *
 * @type {(field: string, units: any, least: number, most?: number) => void}
 */
export function requireUnits(field, units, least, most = Number.MAX_SAFE_INTEGER) {
  requireType(field, "INVALID_REQUEST", units, "number");
  requireWhole(field, "INVALID_REQUEST", units, least, most);
}

/**
 * Throws the error about a cost or a time that is no whole number, in the notation of JavaScript.
 *
 * @type {(cost: number, now: number) => void}
 */
export function requireCostAndTime(cost, now) {
  requireWhole("cost", "INVALID_COST", cost, 0, Number.MAX_SAFE_INTEGER);
  requireTime(now);
}

/**
 * Checks the type of a time that the caller gives, and that it is no `Date.now()`, which would make a window of 1 s last 1,000 s.
 *
 * @type {(now: any) => void}
 */
export function requireNow(now) {
  requireNumber("now", "INVALID_NOW", now);
  if (isInMilliseconds(now)) {
    throw coded("INVALID_NOW", `\`now\`: expected microseconds, found ${now}, which is \`Date.now()\` in milliseconds: multiply it by 1000`);
  }
}

/** @type {(now: number) => void} */
export function requireTime(now) {
  requireWhole("now", "INVALID_NOW", now, 0, Number.MAX_SAFE_INTEGER);
}

/**
 * Checks the name of a lease, or the id of a reservation.
 *
 * @type {(lease: any, field?: string) => string}
 */
export function held(lease, field = "lease") {
  requireText(field, "INVALID_REQUEST", lease);
  return lease;
}

/**
 * Refuses lone surrogates, which would all be encoded alike and make different texts equal.
 *
 * @type {(field: string, code: ErrorCode, text: string) => void}
 */
export function requireWellFormed(field, code, text) {
  if (!text.isWellFormed()) throw coded(code, `\`${field}\`: ${LONE_SURROGATE}`);
}

/**
 * Checks that a key is a text. Its length is checked where it is encoded.
 *
 * @type {(key: any) => void}
 */
export function requireKeyText(key) {
  if (typeof key !== "string") throw wrongType("key", "INVALID_KEY", key, "a string");
  requireWellFormed("key", "INVALID_KEY", key);
}

/** @type {(field: string, code: ErrorCode, value: unknown) => void} */
export function requireNumber(field, code, value) {
  requireType(field, code, value, "number");
}

/** @type {(field: string, value: unknown) => void} */
export function requireFunction(field, value) {
  requireType(field, "INVALID_REQUEST", value, "function");
}

const OPTIONAL = true;
const LONE_SURROGATE = "expected well-formed Unicode, found a lone surrogate";

/** @type {(field: string, code: ErrorCode, value: unknown, type: string, optional?: boolean) => void} */
export function requireType(field, code, value, type, optional = false) {
  if (typeof value === type || (optional && value === undefined)) return;
  throw wrongType(field, code, value, `a ${type}`);
}

/** @type {(field: string, code: ErrorCode, value: any, optional?: boolean) => void} */
export function requireText(field, code, value, optional = false) {
  requireType(field, code, value, "string", optional);
  if (value === undefined) return;
  requireShort(field, code, value, MOST_TEXT);
  requireWellFormed(field, code, value);
}

/** @type {(field: string, code: ErrorCode, text: string, most: number) => string} */
function requireShort(field, code, text, most) {
  if (text.length <= most) return text;
  const message = `\`${field}\`: expected at most ${most} characters, found ${text.length}`;
  throw coded(code, message);
}

/** @type {(field: string, code: ErrorCode, value: any, least: number, most: number) => void} */
export function requireWhole(field, code, value, least, most) {
  if (Number.isInteger(value) && value >= least && value <= most) return;
  const message = `\`${field}\`: expected a whole number from ${least} to ${most}, found ${value}`;
  throw coded(code, message);
}

/**
 * The own fields of an object, which may have no fields but these.
 *
 * @type {(argument: string, code: ErrorCode, found: any, fields: string[]) => Record<string, any>}
 */
export function known(argument, code, found, fields) {
  if (typeof found !== "object" || found === null) throw wrongType(argument, code, found, "an object");
  requirePlain(argument, code, found);
  const unknown = Object.keys(found).find((field) => !fields.includes(field));
  if (unknown !== undefined) throw unknownField(argument, code, unknown, fields);
  /** @type {Record<string, any>} */
  const own = { __proto__: null };
  for (let place = 0; place < fields.length; place++) {
    const field = fields[place];
    if (Object.hasOwn(found, field)) own[field] = found[field];
  }
  return own;
}

/** @type {(argument: string, code: ErrorCode, unknown: string, fields: string[]) => Error} */
export function unknownField(argument, code, unknown, fields) {
  const names = fields.map((field) => `\`${field}\``);
  const last = names.pop() ?? "no field";
  const expected = names.length > 0 ? `${names.join(", ")} or ${last}` : last;
  return coded(code, `\`${argument}\`: expected ${expected}, found \`${shortened(unknown)}\``);
}

/**
 * Refuses an object with its own prototype, because fields of a prototype are not read.
 *
 * @type {(argument: string, code: ErrorCode, found: object) => void}
 */
export function requirePlain(argument, code, found) {
  const notPlain = whyNotPlain(found);
  if (notPlain !== undefined) throw coded(code, `\`${argument}\`: ${notPlain}`);
}

/** @type {(found: object) => string | undefined} */
function whyNotPlain(found) {
  const prototype = Object.getPrototypeOf(found);
  if (prototype === null || (Object.getPrototypeOf(prototype) === null && !Array.isArray(found))) return undefined;
  return `expected a plain object, found ${Array.isArray(found) ? "an array" : "an object with a prototype of its own"}`;
}

/**
 * The value as JSON, with only its own properties. JSON.stringify would call a prototype's `toJSON`,
 * write NaN as null and leave functions out, which the gate would read as "not given". `invalid` makes the error about a
 * path.
 *
 * @type {(value: any, invalid: Invalid, path: string, depth: number) => string}
 */
export function policyJson(value, invalid, path, depth) {
  if (typeof value === "string") {
    if (!value.isWellFormed()) throw invalid(path, LONE_SURROGATE);
    return JSON.stringify(value);
  }
  if (typeof value === "boolean" || value === null || Number.isFinite(value)) return `${value}`;
  if (typeof value !== "object") {
    throw invalid(path, `expected what JSON can write, found ${typeof value === "number" ? value : kindOf(value)}`);
  }
  if (depth === MOST_DEPTH) throw invalid("", `expected at most ${MOST_DEPTH} levels, found more: it may be circular`);
  return Array.isArray(value) ? arrayJson(value, invalid, path, depth + 1) : objectJson(value, invalid, path, depth + 1);
}

/** @type {(array: unknown[], invalid: Invalid, path: string, depth: number) => string} */
function arrayJson(array, invalid, path, depth) {
  let text = "";
  for (let place = 0; place < array.length && text.length <= MOST_POLICY; place++) {
    const value = Object.hasOwn(array, place) ? array[place] : null;
    text += `${text && ","}${policyJson(value, invalid, `${path}[${place}]`, depth)}`;
  }
  return `[${text}]`;
}

/** @type {(object: Record<string, unknown>, invalid: Invalid, path: string, depth: number) => string} */
function objectJson(object, invalid, path, depth) {
  const notPlain = whyNotPlain(object);
  if (notPlain !== undefined) throw invalid(path, notPlain);
  const names = Object.keys(object);
  let text = "";
  for (let place = 0; place < names.length && text.length <= MOST_POLICY; place++) {
    const name = names[place];
    if (!name.isWellFormed()) throw invalid(path, LONE_SURROGATE);
    const value = object[name];
    if (value === undefined) continue;
    const within = path === "" ? shortened(name) : `${path}.${shortened(name)}`;
    text += `${text && ","}${JSON.stringify(name)}:${policyJson(value, invalid, within, depth)}`;
  }
  return `{${text}}`;
}

/** @type {Invalid} */
const invalidOption = (path, message) => coded("INVALID_OPTION", `\`options.${path}\`: ${message}`);

const MOST_DEPTH = 32;

/** @type {Invalid} */
function invalidPolicy(path, message) {
  return coded("INVALID_POLICY", `${path || "`policy`"}: ${message}`, { __proto__: null, line: 0, column: 0, path });
}

/**
 * The error about a lone surrogate in a text with lines.
 *
 * @type {(text: string) => Error}
 */
function loneSurrogate(text) {
  const before = text.slice(0, text.search(/\p{Surrogate}/u)).split("\n");
  const [line, column] = [before.length, Array.from(before[before.length - 1]).length + 1];
  return coded("INVALID_POLICY", `line ${line}, column ${column}: ${LONE_SURROGATE}`, { __proto__: null, line, column, path: "" });
}

/**
 * At most 100 characters of a text of the caller, for a message.
 *
 * @type {(text: string) => string}
 */
export function shortened(text) {
  return text.length <= MOST_SHOWN ? text : `${text.slice(0, MOST_SHOWN).toWellFormed()}…`;
}

const MOST_SHOWN = 100;
