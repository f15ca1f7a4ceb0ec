// `tidegate/toml` for browsers, and for runtimes without an entry of their own. It has a small module of its own.
import { length, order } from "#order";
import text from "#text";

import { decode } from "../../decode.js";
import { start } from "../../module.js";

start(new WebAssembly.Module(decode(text, order, length)));

export { toml, toml as default } from "../../toml.js";
