/**
 * The package with policies in TOML, and with what middleware asks of a limiter.
 *
 * @module tidegate/toml
 */

export * from "tidegate";
export { default } from "tidegate";
