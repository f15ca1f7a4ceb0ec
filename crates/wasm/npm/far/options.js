// The options of a limiter whose states are elsewhere.
import { known, requireText, requireWhole } from "../input.js";
import { spanUs } from "../span.js";

/**
 * The options of a limiter, whose deadline is this one by default.
 *
 * @type {(options: unknown, byDefault: string) => { name?: string, prefix: string, deadlineUs: number }}
 */
export function farOptions(options, byDefault) {
  const { policy, prefix = "", deadline = byDefault } = known("options", "INVALID_OPTION", options, ["policy", "prefix", "deadline"]);
  requireText("options.policy", "INVALID_OPTION", policy, true);
  requireText("options.prefix", "INVALID_OPTION", prefix);
  const deadlineUs = spanUs("options.deadline", deadline);
  requireWhole("options.deadline", "INVALID_OPTION", deadlineUs, 1_000, 3_600_000_000);
  return { name: policy, prefix, deadlineUs };
}
