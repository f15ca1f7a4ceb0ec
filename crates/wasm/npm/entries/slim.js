// The entry without a module: the caller gives it, as `tidegate/tidegate.wasm` or its bytes.
import { initSync } from "#native";

export * from "../index.js";
export { default } from "../index.js";

export function init(module) {
  initSync({ module });
}
