export * from "tidegate";
export { default } from "tidegate";

/**
 * Makes the package ready. Call this once, before the first `Limiter` or `Reporter`.
 *
 * @param module the file `tidegate/tidegate.wasm`, as a `WebAssembly.Module` or as its bytes
 */
export function init(module: object): void;
