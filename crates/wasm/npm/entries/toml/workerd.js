// `tidegate/toml` for Cloudflare Workers. It imports a small module of its own.
import module from "./tidegate.wasm";

import { start } from "../../module.js";

start(module);

export { toml, toml as default } from "../../toml.js";
