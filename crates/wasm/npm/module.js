// The module of WebAssembly, which each entry gives before a limiter needs it.
import { initSync } from "#native";

import { coded } from "./errors.js";

let isReady = false;

/**
 * Takes the module, which may come from another realm. A second call does nothing.
 *
 * @type {(module: object) => void}
 */
export function start(module) {
  if (isReady) return;
  initSync({ module: Object.setPrototypeOf(module, WebAssembly.Module.prototype) });
  isReady = true;
}

/** Only a user of `tidegate/slim` can forget the module. */
export function requireReady() {
  if (isReady) return;
  const expected = "expected a call of `init` before the first `Limiter` or `Reporter`, found none";
  throw coded("NOT_INITIALIZED", `${expected}; give it the file \`tidegate/tidegate.wasm\``);
}
