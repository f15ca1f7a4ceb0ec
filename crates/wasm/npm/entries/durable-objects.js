// The entry of the limiter on Durable Objects, and their class. Cloudflare Workers compile no bytes and import a module instead.
import { Objects, watch } from "#objects";
import { keysBy } from "#worker/keys";
import module from "./tidegate.wasm";

import { start } from "../module.js";

start(module);
watch();

export { ArgumentError, FullError, LimiterError, PolicyError } from "../errors.js";
export { DurableLimiter, DurableLimiter as default } from "../objects/limiter.js";

/** The states of the keys that belong to one object. It reads the policies that limiters tell it of. */
export const Keys = keysBy(async (_questions, _env, policy) => policy !== undefined && Objects.learn(policy));
