// All that Node, Deno and Bun load, so that every entry has the same module. It is part of the script: no bundler can lose it, and no
// permission to read files is needed.
import module from "#module";
import { described as describe } from "#native";

import { start } from "../module.js";
import { readPolicy } from "../reading.js";

start(new WebAssembly.Module(module));

/**
 * The description of a policy file, and then the warnings about it, for the command.
 *
 * @type {(policy: import("../index.js").AnyPolicy) => string[]}
 */
export const described = (policy) => readPolicy(policy, (text) => describe(text));

export * from "../index.js";
export { RedisLimiter } from "../redis/limiter.js";
export { toml } from "../toml.js";
