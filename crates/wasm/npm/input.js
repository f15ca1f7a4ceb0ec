// Reads what callers pass in, as far as only JavaScript can tell: the rest is WebAssembly's.

/** An error with a stable `code`. */
export function coded(Type, code, message) {
  return Object.assign(new Type(message), { code });
}

export function wrongType(field, code, found, allowed) {
  return coded(TypeError, code, `\`${field}\`: found ${kindOf(found)}, allowed is ${allowed}`);
}

/** The policy as text: TOML or JSON as it stands, an object as JSON. */
export function policyText(policy) {
  if (typeof policy === "string") return policy;
  if (typeof policy === "object" && policy !== null && !Array.isArray(policy)) {
    return JSON.stringify(policy, showWhatJsonDrops);
  }
  throw wrongType("policy", "INVALID_POLICY", policy, "an object, or a string of TOML or JSON");
}

/** JSON would turn NaN into null or leave a function out, and so mean a default. */
function showWhatJsonDrops(_field, value) {
  const dropped = typeof value === "number" ? !Number.isFinite(value) : !JSON_TYPES.has(typeof value);
  return dropped ? String(value) : value;
}

const JSON_TYPES = new Set(["string", "boolean", "object", "undefined"]);

export function readOptions(options) {
  if (typeof options !== "object" || options === null) {
    throw wrongType("options", "INVALID_OPTION", options, "an object");
  }
  const { policy, maxKeys, ...unknown } = options;
  const [misspelt] = Object.keys(unknown);
  if (misspelt !== undefined) {
    throw coded(TypeError, "INVALID_OPTION", `\`options\`: found \`${misspelt}\`, allowed are \`policy\` and \`maxKeys\``);
  }
  if (policy !== undefined && typeof policy !== "string") {
    throw wrongType("options.policy", "INVALID_OPTION", policy, "a string");
  }
  if (maxKeys !== undefined && typeof maxKeys !== "number") {
    throw wrongType("options.maxKeys", "INVALID_OPTION", maxKeys, "a number");
  }
  return { name: policy, maxKeys };
}

function kindOf(value) {
  if (value === null || value === undefined) return String(value);
  if (Array.isArray(value)) return "an array";
  return typeof value === "object" ? "an object" : `a ${typeof value}`;
}
