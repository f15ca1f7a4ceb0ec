/**
 * The package without its WebAssembly, which the caller gives to {@link init}.
 *
 * @module tidegate/slim
 */

export * from "tidegate";
export { default } from "tidegate";

/**
 * Makes the package ready. Call this before the first `Limiter` or `Reporter`, which otherwise throw `NOT_INITIALIZED`. A second
 * call with the same file does nothing.
 *
 * @param module the file `tidegate/tidegate.wasm` of the same version, as a `WebAssembly.Module` or as its bytes
 * @throws {ArgumentError} `INVALID_MODULE` for anything else; nothing has changed
 */
export function init(module: object): void;
