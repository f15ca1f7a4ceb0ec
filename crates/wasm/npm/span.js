// Spans of time, which WebAssembly reads as it reads those of a policy.
import { spanOf } from "#native";
import { caught } from "./errors.js";
import { requireSpan } from "./input.js";

/**
 * A span of time in microseconds: a number of them, or a text such as `"1m30s"`.
 *
 * @type {(field: string, span: any) => number}
 */
export function spanUs(field, span) {
  requireSpan(field, span);
  return typeof span === "string" ? caught(() => spanOf(field, span)) : span;
}
