// The entry `tidegate/toml`.
export { toml, toml as default } from "./all.js";
