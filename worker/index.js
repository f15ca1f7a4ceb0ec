// The entry of the Worker. The policy file is a text module beside the compiled Worker, so editing it needs
// no build of Rust code. The Worker reads it at its first request.
import policies from "../policies.toml";

globalThis.TIDEGATE_POLICIES = policies;

export * from "./build/index.js";
export { default } from "./build/index.js";
