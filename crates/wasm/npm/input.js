// What callers pass in, as far as only JavaScript can tell what it is. Ranges and contents are
// checked in WebAssembly.

/** An error with a stable `code`. */
export function coded(Type, code, message) {
  return Object.assign(new Type(message), { code });
}

export function wrongType(field, code, found, allowed) {
  return coded(TypeError, code, `\`${field}\`: found ${kindOf(found)}, allowed is ${allowed}`);
}

/** The policy as text: a string as it stands, an object as JSON. */
export function policyText(policy) {
  if (typeof policy === "string") return policy;
  const text = toJson(policy);
  if (text?.startsWith("{")) return text;
  throw wrongType("policy", "INVALID_POLICY", policy, "an object, or a string of TOML or JSON");
}

export function limiterOptions(options) {
  const { policy, maxKeys } = known("options", "INVALID_OPTION", options, ["policy", "maxKeys"]);
  requireType("options.policy", "INVALID_OPTION", policy, "string", OPTIONAL);
  requireType("options.maxKeys", "INVALID_OPTION", maxKeys, "number", OPTIONAL);
  return { name: policy, maxKeys };
}

/** A policy of the limit alone, as JSON, and whether there is a cap. */
export function reporterOptions(options) {
  const { limit, localCap = true } = known("options", "INVALID_OPTION", options, ["limit", "localCap"]);
  requireType("options.limit", "INVALID_OPTION", limit, "string");
  requireType("options.localCap", "INVALID_OPTION", localCap, "boolean");
  return { policy: JSON.stringify({ limits: [{ algorithm: "suppression", rate: limit }] }), localCap };
}

/**
 * What is asked of a key, as the gate reads it: the fields of one of the lists below, and those
 * that have been `asked` already.
 */
export function operationText(operation, argument, given, fields, asked = {}) {
  const read = known(argument, "INVALID_REQUEST", given, fields.names);
  for (const { name, wire, type, required, least = 0, most, code = "INVALID_REQUEST" } of fields) {
    const value = read[name];
    requireType(name, code, value, type, !required);
    // checked here, for JSON has no way to write NaN
    if (typeof value === "number") requireWhole(name, code, value, least, most);
    if (typeof value === "string") requireWellFormed(name, code, value);
    asked[wire] = value;
  }
  return JSON.stringify({ [operation]: asked });
}

const TEXT = { type: "string" };
const QUANTITY = { type: "number", most: Number.MAX_SAFE_INTEGER };
const NEEDED = { ...QUANTITY, required: true };

const CHECK = {
  cost: { ...QUANTITY, code: "INVALID_COST" },
  class: TEXT,
  lease: TEXT,
  signalPpm: { type: "number", most: 1_000_000 },
  draw: { type: "number", most: 0xffff_ffff },
};

/** The fields of `check`. */
export const REQUEST = fieldList(CHECK);
/** The same to acquire a lease: who only looks gets none. */
export const ACQUISITION = fieldList({ ...CHECK, cost: { ...CHECK.cost, least: 1 } });
/** The fields of `settle`. */
export const SETTLEMENT = fieldList({ grantedAtUs: NEEDED, reserved: NEEDED, actual: NEEDED });
/** The fields of `renew` beside the lease. */
export const RENEWAL = fieldList({ count: { type: "number", most: 0xffff_ffff } });
/** The fields of `budget` beside the lease. */
export const BUDGET = fieldList({ wants: NEEDED, grantedAtUs: QUANTITY, left: QUANTITY });
/** Those of `release`: none. */
export const RELEASE = fieldList({});
/** The fields of `report`. */
export const REPORT = fieldList({ admitted: NEEDED, suppressed: NEEDED, offeredAtUs: QUANTITY });

function fieldList(rules) {
  const snake = (name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  const fields = Object.entries(rules).map(([name, rule]) => ({ name, wire: snake(name), ...rule }));
  return Object.assign(fields, { names: Object.keys(rules) });
}

/** The field that names a lease. */
export function held(lease) {
  requireType("lease", "INVALID_REQUEST", lease, "string");
  requireWellFormed("lease", "INVALID_REQUEST", lease);
  return { lease };
}

/** Every lone surrogate is encoded alike, so that different texts would be taken for one. */
export function requireWellFormed(field, code, text) {
  if (text.isWellFormed()) return;
  const message = `\`${field}\`: found a lone surrogate, allowed is well-formed Unicode`;
  throw coded(RangeError, code, message);
}

export function requireNumber(field, code, value) {
  requireType(field, code, value, "number");
}

/** Microseconds since the Unix epoch. */
export function clock() {
  return Math.floor(Date.now() * 1000);
}

const OPTIONAL = true;

function requireType(field, code, value, type, optional = false) {
  if (typeof value === type || (optional && value === undefined)) return;
  throw wrongType(field, code, value, `a ${type}`);
}

function requireWhole(field, code, value, least, most) {
  if (Number.isInteger(value) && value >= least && value <= most) return;
  const message = `\`${field}\`: found ${value}, allowed are whole numbers from ${least} to ${most}`;
  throw coded(RangeError, code, message);
}

/** An object with no other fields than these. */
function known(argument, code, found, fields) {
  if (typeof found !== "object" || found === null) throw wrongType(argument, code, found, "an object");
  const unknown = Object.keys(found).find((field) => !fields.includes(field));
  if (unknown === undefined) return found;
  const allowed = fields.map((field) => `\`${field}\``);
  const last = allowed.pop();
  const list = allowed.length > 0 ? `are ${allowed.join(", ")} and ${last}` : `is ${last}`;
  throw coded(TypeError, code, `\`${argument}\`: found \`${unknown}\`, allowed ${list}`);
}

function toJson(value) {
  try {
    return JSON.stringify(value, keepWhatJsonDrops);
  } catch (cause) {
    throw coded(TypeError, "INVALID_POLICY", `\`policy\`: ${cause.message}`);
  }
}

/**
 * JSON writes NaN as null and leaves functions out, and either would be read as "not given". As
 * text they are refused where they stand.
 */
function keepWhatJsonDrops(_field, value) {
  const dropped = typeof value === "number" ? !Number.isFinite(value) : UNKNOWN_TO_JSON.has(typeof value);
  return dropped ? String(value) : value;
}

function kindOf(value) {
  if (value === null || value === undefined) return String(value);
  if (Array.isArray(value)) return "an array";
  return typeof value === "object" ? "an object" : `a ${typeof value}`;
}

const UNKNOWN_TO_JSON = new Set(["bigint", "function", "symbol"]);
