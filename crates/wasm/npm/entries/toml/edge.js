// `tidegate/toml` for Vercel's edge runtime. It imports a small module of its own.
import module from "./tidegate.wasm?module";

import { start } from "../../module.js";

start(module);

export { toml, toml as default } from "../../toml.js";
