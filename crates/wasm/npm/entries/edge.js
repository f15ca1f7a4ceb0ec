// The entry for Vercel's edge runtime, which compiles no bytes and imports a module instead, made outside of the program's realm.
import module from "./tidegate.wasm?module";

import { start } from "../module.js";

start(module);

export * from "../index.js";
export { default } from "../index.js";
