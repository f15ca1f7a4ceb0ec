/**
 * Policies in TOML, for the limiters of all entries. In browsers and Workers this entry loads a module of its own, of 50 KB compressed.
 *
 * @module tidegate/toml
 */

import type { TomlPolicy } from "tidegate";

export type { TomlPolicy } from "tidegate";

/**
 * Makes a policy of a text in TOML. The limiter that gets it reads the text, and its errors name the line and the column there.
 *
 * ```js
 * import { Limiter } from "tidegate";
 * import { toml } from "tidegate/toml";
 *
 * const limiter = new Limiter(toml('limits = [{ algorithm = "token_bucket", capacity = 5, rate = "1/s" }]'));
 * ```
 *
 * @param text one policy or a policy file in TOML
 */
export function toml(text: string): TomlPolicy;
export { toml as default };
