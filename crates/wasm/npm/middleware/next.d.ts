export * from "./fetch.js";
export { default } from "./fetch.js";
