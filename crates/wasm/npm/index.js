// The entry for Node and what loads like it. Another runtime gets an entry of its own, which
// differs only in where the module's bytes come from.
import { readFileSync } from "node:fs";

import { initSync } from "./dist/tidegate.js";

initSync({ module: readFileSync(new URL("./dist/tidegate_bg.wasm", import.meta.url)) });

export { Limiter } from "./limiter.js";
export { Reporter } from "./reporter.js";
