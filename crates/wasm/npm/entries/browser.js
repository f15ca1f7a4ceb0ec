// The entry for browsers, and for runtimes without an entry of their own. The module is part of the script, in a form
// that compresses well.
import { length, order } from "#order";
import text from "#text";

import { decode } from "../decode.js";
import { start } from "../module.js";

start(new WebAssembly.Module(decode(text, order, length)));

export * from "../index.js";
export { default } from "../index.js";
