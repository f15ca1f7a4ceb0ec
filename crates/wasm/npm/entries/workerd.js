// The entry for Cloudflare Workers, which compile no bytes and import a module instead.
import module from "./tidegate.wasm";

import { start } from "../module.js";

start(module);

export * from "../index.js";
export { default } from "../index.js";
