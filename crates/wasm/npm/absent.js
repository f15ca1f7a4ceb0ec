// The methods of `Limiter` that need all states in memory. Other limiters say so.
import { coded } from "./errors.js";

/** @type {(prototype: object) => void} */
export function defineAbsent(prototype) {
  for (const name of ["set", "resetAll", "dump", "restore", "update", "limited", "sweep", "free"]) {
    const value = () => {
      throw coded("INVALID_REQUEST", `\`${name}\`: needs a \`Limiter\`, which has all states in memory`);
    };
    Object.defineProperty(prototype, name, { __proto__: null, value, writable: true, configurable: true });
  }
}
