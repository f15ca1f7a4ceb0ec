// Spans of time, which WebAssembly reads as it reads those of a policy.
import { spanOf } from "#native";
import { caught } from "./errors.js";
import { requireText, requireWhole, wrongType } from "./input.js";

/**
 * A span of time in microseconds: a number of them, or a text such as `"1m30s"`.
 *
 * @type {(field: string, span: unknown) => number}
 */
export function spanUs(field, span) {
  if (typeof span === "string") {
    requireText(field, "INVALID_REQUEST", span);
    return caught(() => spanOf(field, span));
  }
  if (typeof span !== "number") throw wrongType(field, "INVALID_REQUEST", span, "a number or a string");
  requireWhole(field, "INVALID_REQUEST", span, 0, Number.MAX_SAFE_INTEGER);
  return span;
}
