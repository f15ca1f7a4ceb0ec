// The entry of the limiter on Redis, for Node, Deno and Bun. Its module is part of the script, as that of `node.js`.
import module from "#module";

import { start } from "../module.js";

start(new WebAssembly.Module(module));

export { ArgumentError, FullError, LimiterError, PolicyError } from "../errors.js";
export { RedisLimiter, RedisLimiter as default } from "../redis/limiter.js";
