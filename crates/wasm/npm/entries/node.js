// The entry for Node, Deno and Bun. The module is part of the script, so that no bundler can lose it and no
// permission to read files is needed.
import module from "#module";

import { start } from "../module.js";

start(new WebAssembly.Module(module));

export * from "../index.js";
export { default } from "../index.js";
