// Checks the types of arguments. WebAssembly checks ranges and contents.
//
// Only own properties are read, and no value is assigned to a property that a prototype could define, so
// that properties which another library puts on `Object.prototype` change no decision.

/** An error with a stable `code` and other properties. */
export function coded(Type, code, message, others = { __proto__: null }) {
  const error = new Type(message);
  define(error, "code", code);
  for (const name of Object.keys(others)) define(error, name, others[name]);
  return error;
}

export function wrongType(field, code, found, expected) {
  return coded(TypeError, code, `\`${field}\`: expected ${expected}, found ${kindOf(found)}`);
}

/** The policy as text: a string unchanged, an object as JSON. */
export function policyText(policy) {
  if (typeof policy === "string") {
    if (!policy.isWellFormed()) throw loneSurrogate("", policy);
    return requireShort("policy", "INVALID_POLICY", policy, MOST_POLICY);
  }
  if (typeof policy !== "object" || policy === null || Array.isArray(policy)) {
    throw wrongType("policy", "INVALID_POLICY", policy, "an object, or a string of TOML or JSON");
  }
  requirePlain("policy", "INVALID_POLICY", policy);
  return requireShort("policy", "INVALID_POLICY", policyJson(policy, "", 0), MOST_POLICY);
}

export function limiterOptions(options) {
  const { policy, maxBytes } = known("options", "INVALID_OPTION", options, ["policy", "maxBytes"]);
  requireText("options.policy", "INVALID_OPTION", policy, OPTIONAL);
  requireType("options.maxBytes", "INVALID_OPTION", maxBytes, "number", OPTIONAL);
  return { name: policy, maxBytes };
}

/** A policy with only this limit, as JSON, and whether the reporter has a cap. */
export function reporterOptions(options) {
  const { limit, localCap = true } = known("options", "INVALID_OPTION", options, ["limit", "localCap"]);
  requireText("options.limit", "INVALID_OPTION", limit);
  requireType("options.localCap", "INVALID_OPTION", localCap, "boolean");
  return { policy: `{"limits":[{"algorithm":"suppression","rate":${JSON.stringify(limit)}}]}`, localCap };
}

/**
 * An operation as the gate reads it: the fields of one of the lists below, and the lease that the
 * operation concerns.
 */
export function operationText(operation, argument, given, fields, lease) {
  const read = known(argument, "INVALID_REQUEST", given, fields.names);
  let text = lease === undefined ? "" : `"lease":${JSON.stringify(lease)}`;
  for (let place = 0; place < fields.list.length; place++) {
    const { name, wire, type, required, least, most, code } = fields.list[place];
    const value = read[name];
    if (type === "string") requireText(name, code, value, !required);
    else requireType(name, code, value, type, !required);
    // checked here, because JSON cannot write NaN
    if (typeof value === "number") requireWhole(name, code, value, least, most);
    if (value !== undefined) text += `${text && ","}"${wire}":${JSON.stringify(value)}`;
  }
  return `{"${operation}":{${text}}}`;
}

const MOST_POLICY = 1_048_576;
// The gate's own bound is lower. This bound only keeps a long text from exhausting the memory first.
const MOST_TEXT = 1_000;

const TEXT = rule("string", "INVALID_REQUEST");
const COST = rule("number", "INVALID_COST", Number.MAX_SAFE_INTEGER);
const QUANTITY = rule("number", "INVALID_REQUEST", Number.MAX_SAFE_INTEGER);
const NEEDED = { ...QUANTITY, required: true };
const CHECK = {
  class: TEXT,
  lease: TEXT,
  signalPpm: rule("number", "INVALID_REQUEST", 1_000_000),
  draw: rule("number", "INVALID_REQUEST", 0xffff_ffff),
};

/** The fields of `check`. */
export const REQUEST = fieldList({ cost: COST, ...CHECK });
/** The fields of `check` to acquire a lease: a cost of 0 acquires none. */
export const ACQUISITION = fieldList({ cost: { ...COST, least: 1 }, ...CHECK });
/** The fields of `settle`. */
export const SETTLEMENT = fieldList({ grantedAtUs: NEEDED, reserved: NEEDED, actual: NEEDED });
/** What `refund` takes. */
export const REFUND = fieldList({ units: { ...NEEDED, least: 1 } });
/** `reset` takes nothing but the key. */
export const RESET = fieldList({});
/** What `block` takes. */
export const BLOCK = fieldList({ forUs: NEEDED });
/** The fields of `renew` beside the lease. */
export const RENEWAL = fieldList({ count: rule("number", "INVALID_REQUEST", 0xffff_ffff) });
/** The fields of `budget` beside the lease. */
export const BUDGET = fieldList({ wants: NEEDED, grantedAtUs: QUANTITY, left: QUANTITY });
/** `release` has no field beside the lease. */
export const RELEASE = fieldList({});
/** The fields of `report`. */
export const REPORT = fieldList({ admitted: NEEDED, suppressed: NEEDED, offeredAtUs: QUANTITY });

function rule(type, code, most = undefined) {
  return { type, code, required: false, least: 0, most };
}

function fieldList(rules) {
  const snake = (name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  const names = Object.keys(rules);
  return { names, list: names.map((name) => ({ name, wire: snake(name), ...rules[name] })) };
}

/** Checks the name of a lease. */
export function held(lease) {
  requireText("lease", "INVALID_REQUEST", lease);
  return lease;
}

/** Refuses lone surrogates, which would all be encoded alike and make different texts equal. */
export function requireWellFormed(field, code, text) {
  if (!text.isWellFormed()) throw coded(RangeError, code, `\`${field}\`: ${LONE_SURROGATE}`);
}

export function requireNumber(field, code, value) {
  requireType(field, code, value, "number");
}

/** Microseconds since the Unix epoch. */
export function clock() {
  return Math.floor(Date.now() * 1000);
}

const OPTIONAL = true;
const LONE_SURROGATE = "expected well-formed Unicode, found a lone surrogate";

function requireType(field, code, value, type, optional = false) {
  if (typeof value === type || (optional && value === undefined)) return;
  throw wrongType(field, code, value, `a ${type}`);
}

function requireText(field, code, value, optional = false) {
  requireType(field, code, value, "string", optional);
  if (value === undefined) return;
  requireShort(field, code, value, MOST_TEXT);
  requireWellFormed(field, code, value);
}

function requireShort(field, code, text, most) {
  if (text.length <= most) return text;
  const message = `\`${field}\`: expected at most ${most} characters, found ${text.length}`;
  throw coded(RangeError, code, message);
}

function requireWhole(field, code, value, least, most) {
  if (Number.isInteger(value) && value >= least && value <= most) return;
  const message = `\`${field}\`: expected a whole number from ${least} to ${most}, found ${value}`;
  throw coded(RangeError, code, message);
}

/** The own fields of an object, which may have no fields but these. */
function known(argument, code, found, fields) {
  if (typeof found !== "object" || found === null) throw wrongType(argument, code, found, "an object");
  requirePlain(argument, code, found);
  const unknown = Object.keys(found).find((field) => !fields.includes(field));
  if (unknown !== undefined) throw unknownField(argument, code, unknown, fields);
  const own = { __proto__: null };
  for (let place = 0; place < fields.length; place++) {
    const field = fields[place];
    if (Object.hasOwn(found, field)) own[field] = found[field];
  }
  return own;
}

function unknownField(argument, code, unknown, fields) {
  const names = fields.map((field) => `\`${field}\``);
  const last = names.pop() ?? "no field";
  const expected = names.length > 0 ? `${names.join(", ")} or ${last}` : last;
  return coded(TypeError, code, `\`${argument}\`: expected ${expected}, found \`${unknown}\``);
}

/** Refuses an object with its own prototype, because fields of a prototype are not read. */
function requirePlain(argument, code, found) {
  const prototype = Object.getPrototypeOf(found);
  if (prototype === null || (Object.getPrototypeOf(prototype) === null && !Array.isArray(found))) return;
  const kind = Array.isArray(found) ? "an array" : "an object with a prototype of its own";
  throw coded(TypeError, code, `\`${argument}\`: expected a plain object, found ${kind}`);
}

/**
 * The value as JSON, with only its own properties. JSON.stringify would call a prototype's `toJSON`,
 * write NaN as null and leave functions out, which the gate would read as "not given". Here such values
 * become text, which the gate refuses with their path.
 */
function policyJson(value, path, depth) {
  if (typeof value === "string") {
    if (!value.isWellFormed()) throw loneSurrogate(path);
    return JSON.stringify(value);
  }
  if (typeof value === "boolean" || value === null || Number.isFinite(value)) return `${value}`;
  if (typeof value !== "object") return JSON.stringify(String(value));
  if (depth === MOST_DEPTH) {
    const message = `\`policy\`: expected at most ${MOST_DEPTH} levels, found more: it may be circular`;
    throw coded(TypeError, "INVALID_POLICY", message);
  }
  return Array.isArray(value) ? arrayJson(value, path, depth + 1) : objectJson(value, path, depth + 1);
}

function arrayJson(array, path, depth) {
  let text = "";
  for (let place = 0; place < array.length && text.length <= MOST_POLICY; place++) {
    const value = Object.hasOwn(array, place) ? array[place] : null;
    text += `${text && ","}${policyJson(value, `${path}[${place}]`, depth)}`;
  }
  return `[${text}]`;
}

function objectJson(object, path, depth) {
  const names = Object.keys(object);
  let text = "";
  for (let place = 0; place < names.length && text.length <= MOST_POLICY; place++) {
    const name = names[place];
    if (!name.isWellFormed()) throw loneSurrogate(path);
    const value = object[name];
    if (value === undefined) continue;
    const within = path === "" ? name : `${path}.${name}`;
    text += `${text && ","}${JSON.stringify(name)}:${policyJson(value, within, depth)}`;
  }
  return `{${text}}`;
}

const MOST_DEPTH = 32;

/** The error about a lone surrogate at a path, or in a text with lines. */
function loneSurrogate(path, text) {
  let [line, column, place] = [0, 0, path === "" ? "" : `${path}: `];
  if (text !== undefined) {
    const before = text.slice(0, text.search(/\p{Surrogate}/u)).split("\n");
    [line, column] = [before.length, Array.from(before[before.length - 1]).length + 1];
    place = `line ${line}, column ${column}: `;
  }
  return coded(Error, "INVALID_POLICY", place + LONE_SURROGATE, { __proto__: null, line, column, path });
}

/** Assigns a property without calling a setter of a prototype. */
function define(object, name, value) {
  Object.defineProperty(object, name, {
    __proto__: null, value, configurable: true, enumerable: true, writable: true,
  });
}

function kindOf(value) {
  if (value === null || value === undefined) return String(value);
  if (Array.isArray(value)) return "an array";
  return typeof value === "object" ? "an object" : `a ${typeof value}`;
}
