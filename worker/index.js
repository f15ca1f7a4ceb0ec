// The Worker's entry. The policy file is a text module beside the compiled Worker, so that editing
// it needs no Rust; the Worker reads it at its first request.
import policies from "../policies.toml";

globalThis.TIDEGATE_POLICIES = policies;

export * from "./build/index.js";
export { default } from "./build/index.js";
