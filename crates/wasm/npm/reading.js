// Policies as a caller gives them: an object, a text in JSON, or what `toml` of `tidegate/toml` returns.
import { requireMemory } from "#native";
import { PolicyError, caught, coded } from "./errors.js";
import { policyText, requireFileText } from "./input.js";

/** @import { Policy, PolicyFile, TomlPolicy } from "./index.js" */
/** @typedef {(text: string, isWritten: boolean) => T} Take<T> takes JSON, and whether errors name its lines @template T */
/** @typedef {{ fromToml: (text: string) => string, placeInToml: (text: string, column: number) => Uint32Array }} Reader */

/** Another copy of the package may have made the object. */
const READER = Symbol.for("tidegate.toml");

/**
 * Hands a policy to WebAssembly. An error about a text names its line, also if the text is TOML.
 *
 * @template T
 * @param {Policy | PolicyFile | TomlPolicy | string} policy
 * @param {Take<T>} take
 * @returns {T}
 */
export function readPolicy(policy, take) {
  if (typeof policy === "object" && policy !== null && Object.hasOwn(policy, READER)) return readToml(/** @type {any} */ (policy), take);
  return taken(policyText(policy), typeof policy === "string", take);
}

/**
 * @template T
 * @param {TomlPolicy & Record<typeof READER, Reader>} policy
 * @param {Take<T>} take
 */
function readToml({ text, [READER]: { fromToml, placeInToml } }, take) {
  requireFileText("text", text);
  const json = caught(() => fromToml(text));
  try {
    return taken(json, true, take);
  } catch (error) {
    if (!(error instanceof PolicyError) || error.column === 0) throw error;
    const { code, message, path } = error;
    const [line, column] = placeInToml(text, error.column);
    throw coded(code, message.replace(/^line \d+, column \d+/, `line ${line}, column ${column}`), { __proto__: null, line, column, path });
  }
}

/**
 * @template T
 * @param {string} json
 * @param {boolean} isWritten
 * @param {Take<T>} take
 */
function taken(json, isWritten, take) {
  return caught(() => {
    requireMemory(json.length);
    return take(json, isWritten);
  });
}
