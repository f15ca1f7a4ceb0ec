export * from "tidegate";
export { default } from "tidegate";
