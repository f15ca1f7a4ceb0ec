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

export function readOptions(options) {
  if (typeof options !== "object" || options === null) {
    throw wrongType("options", "INVALID_OPTION", options, "an object");
  }
  const { policy, maxKeys, ...others } = options;
  const [unknown] = Object.keys(others);
  if (unknown !== undefined) {
    const message = `\`options\`: found \`${unknown}\`, allowed are \`policy\` and \`maxKeys\``;
    throw coded(TypeError, "INVALID_OPTION", message);
  }
  if (policy !== undefined && typeof policy !== "string") {
    throw wrongType("options.policy", "INVALID_OPTION", policy, "a string");
  }
  if (maxKeys !== undefined && typeof maxKeys !== "number") {
    throw wrongType("options.maxKeys", "INVALID_OPTION", maxKeys, "a number");
  }
  return { name: policy, maxKeys };
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
