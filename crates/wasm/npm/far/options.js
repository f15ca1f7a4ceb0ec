// The options of a limiter whose states are elsewhere.
import { known, requireText } from "../input.js";
import { deadlineUs } from "../span.js";

/**
 * The options of a limiter, whose deadline is this one by default.
 *
 * @type {(options: unknown, byDefault: string) => { name?: string, prefix: string, deadlineUs: number }}
 */
export function farOptions(options, byDefault) {
  const { policy, prefix = "", deadline = byDefault } = known("options", "INVALID_OPTION", options, ["policy", "prefix", "deadline"]);
  requireText("options.policy", "INVALID_OPTION", policy, true);
  requireText("options.prefix", "INVALID_OPTION", prefix);
  return { name: policy, prefix, deadlineUs: deadlineUs(deadline) };
}
