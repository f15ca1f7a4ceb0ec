// The entry `tidegate/toml`. It only marks a text as TOML: the limiter reads it, and throws its own errors.
import { fromToml, placeInToml } from "#native";

const READER = Symbol.for("tidegate.toml");

/** @type {typeof import("./toml.js").toml} */
export function toml(text) {
  return Object.freeze({ format: "TOML", text, [READER]: { fromToml, placeInToml } });
}
