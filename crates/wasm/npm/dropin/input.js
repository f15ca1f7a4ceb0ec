// Reads what callers give.
import { ArgumentError } from "tidegate";

/**
 * These fields of an object, which may be inherited, but not from `Object.prototype`: what another library puts there
 * decides nothing.
 */
export function fieldsOf(object, names) {
  const found = { __proto__: null };
  for (const name of names) {
    const isForeign = name in Object.prototype && !Object.hasOwn(object ?? {}, name);
    found[name] = isForeign ? undefined : object?.[name];
  }
  return found;
}

/** The text by which a key is counted: strings and other values have different ones, and none is read as an address. */
export function keyText(key) {
  if (typeof key === "string") return `=${key}`;
  if ((typeof key === "object" && key !== null) || typeof key === "function" || typeof key === "symbol") {
    throw new ArgumentError("INVALID_KEY", `\`key\`: expected a string or a number, found a ${typeof key}`);
  }
  return `${typeof key}:${key}`;
}

export function requireNumber(field, value, least = -Infinity) {
  if (typeof value === "number" && Number.isFinite(value) && value >= least) return value;
  throw invalid(field, `a finite number${least === -Infinity ? "" : ` of at least ${least}`}`, value);
}

export function requireWhole(field, value, least, most = 2 ** 50) {
  if (Number.isInteger(value) && value >= least && value <= most) return value;
  throw invalid(field, `a whole number from ${least} to ${most}`, value);
}

export function invalid(field, expected, found) {
  const shown = typeof found === "string" ? JSON.stringify(found) : String(found);
  return new ArgumentError("INVALID_OPTION", `\`${field}\`: expected ${expected}, found ${shown}`);
}

/** Microseconds since the Unix epoch. */
export function clock() {
  return Math.floor(Date.now() * 1000);
}
