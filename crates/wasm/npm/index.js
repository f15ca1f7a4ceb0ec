// The entry for Node and runtimes that load modules as Node does. Entries for other runtimes differ only
// in the source of the module's bytes.
import { readFileSync } from "node:fs";

import { initSync } from "./dist/tidegate.js";

initSync({ module: readFileSync(new URL("./dist/tidegate_bg.wasm", import.meta.url)) });

export { ArgumentError, FullError, LimiterError, PolicyError } from "./errors.js";
export { Limiter } from "./limiter.js";
export { Reporter } from "./reporter.js";
