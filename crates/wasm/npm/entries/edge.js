// The entry for Vercel's edge runtime, which compiles no bytes and imports a module instead.
import module from "./tidegate.wasm?module";
import { initSync } from "#native";

// The runtime makes the module outside of the program's realm, so `initSync` would not know it for a module.
initSync({ module: Object.setPrototypeOf(module, WebAssembly.Module.prototype) });

export * from "../index.js";
export { default } from "../index.js";
