// What a value is, for messages. Middleware shares it with the limiters.

/** @type {(value: unknown) => string} */
export function kindOf(value) {
  if (value === null || value === undefined) return String(value);
  if (Array.isArray(value)) return "an array";
  return typeof value === "object" ? "an object" : `a ${typeof value}`;
}
