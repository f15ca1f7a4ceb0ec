// The entry for Node, Deno and Bun. The module is part of the script, so that no bundler can lose it and no
// permission to read files is needed.
import module from "#module";
import { initSync } from "#native";

initSync({ module });

export * from "../index.js";
export { default } from "../index.js";
