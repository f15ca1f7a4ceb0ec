// The entry without a module: the caller gives it, as `tidegate/tidegate.wasm` or its bytes.
import { stamp } from "#order";

import { coded } from "../errors.js";
import { kindOf } from "../middleware/kind.js";
import { start } from "../module.js";

export * from "../index.js";
export { default } from "../index.js";

/** @type {typeof import("../slim.js").init} */
export function init(module) {
  const compiled = stampOf(module) === undefined ? compile(module) : module;
  // another build could have the same exports, and answer by other numbers
  if (stampOf(compiled) !== stamp) throw notTheModule("another module");
  start(compiled);
}

/**
 * The text by which the build stamps a module; empty without one, and `undefined` if `module` is no module.
 *
 * @type {(module: object) => string | undefined}
 */
function stampOf(module) {
  try {
    const [section] = WebAssembly.Module.customSections(module, "tidegate");
    return section === undefined ? "" : new TextDecoder().decode(section);
  } catch {
    return undefined;
  }
}

/** @type {(given: any) => WebAssembly.Module} */
function compile(given) {
  try {
    // V8 compiles no DataView
    return new WebAssembly.Module(ArrayBuffer.isView(given) ? new Uint8Array(given.buffer, given.byteOffset, given.byteLength) : given);
  } catch (error) {
    if (error instanceof TypeError) throw notTheModule(kindOf(given));
    throw notTheModule(`bytes that cannot be compiled: ${/** @type {Error} */ (error).message}`);
  }
}

/** @type {(found: string) => Error} */
function notTheModule(found) {
  const expected = "the file `tidegate/tidegate.wasm` as a WebAssembly.Module or as its bytes";
  return coded("INVALID_MODULE", `\`module\`: expected ${expected}, found ${found}`);
}
