// Spans of time as the calls take them: the texts that a policy file has, and the gate reads.
import { coded } from "./errors.js";
import { requireText, shortened, wrongType } from "./input.js";

/** @import { ErrorCode } from "./index.js" */

/** From the largest to the smallest. */
const UNITS = new Map([["d", 86_400_000_000], ["h", 3_600_000_000], ["m", 60_000_000], ["min", 60_000_000], ["s", 1_000_000], ["ms", 1_000], ["us", 1]]);
/** A part of a span: its count, its decimals, its unit, and the spaces before the next part. */
const PART = /([0-9]+)(?:\.([0-9]+))? *([a-z]+)( *)/y;
const [LEAST_DEADLINE_US, MOST_DEADLINE_US] = [1_000, 3_600_000_000];

/**
 * How long a block lasts, in microseconds. 0 ends it.
 *
 * @type {(span: any) => number}
 */
export const blockUs = (span) => (span === 0 ? 0 : spanUs("span", span));

/**
 * A span in microseconds. A number would not say its unit.
 *
 * @type {(field: string, span: any, code?: ErrorCode) => number}
 */
export function spanUs(field, span, code = "INVALID_REQUEST") {
  if (typeof span === "number") throw coded(code, `\`${field}\`: expected a span such as "60s", found ${span} (a number)`);
  if (typeof span !== "string") throw wrongType(field, code, span, 'a span such as "60s"');
  requireText(field, code, span);
  const us = microseconds(span);
  if (us >= 1 && us <= Number.MAX_SAFE_INTEGER) return us;
  const allowed = "above 0 and at most 285 years, such as \"90s\", \"1.5s\" or \"1m30s\", with the units d, h, m, s, ms, us";
  throw coded(code, `\`${field}\`: expected a span of time in whole microseconds, ${allowed}; found ${JSON.stringify(shortened(span))}`);
}

/**
 * The deadline among the options of a limiter.
 *
 * @type {(deadline: any) => number}
 */
export function deadlineUs(deadline) {
  const us = spanUs("options.deadline", deadline, "INVALID_OPTION");
  if (us >= LEAST_DEADLINE_US && us <= MOST_DEADLINE_US) return us;
  throw coded("INVALID_OPTION", `\`options.deadline\`: expected a span from "1ms" to "1h", found ${JSON.stringify(deadline)}`);
}

/**
 * The microseconds of a text, exact if they are at most 2^53; `NaN` if the text is no span.
 *
 * @type {(text: string) => number}
 */
function microseconds(text) {
  let [us, larger, at] = [0, Infinity, 0];
  while (at < text.length) {
    PART.lastIndex = at;
    const found = PART.exec(text);
    if (found === null) return NaN;
    const [all, count, decimals, name, spaces] = found;
    at += all.length;
    const [unit, isLast] = [UNITS.get(name) ?? Infinity, at === text.length];
    if (unit >= larger || (isLast && spaces !== "") || (decimals !== undefined && !isLast)) return NaN;
    us += Number(count) * unit + fraction(decimals, unit);
    larger = unit;
  }
  return us;
}

/**
 * The microseconds of the decimals of a count; `NaN` if they are not whole.
 *
 * @type {(decimals: string | undefined, unit: number) => number}
 */
function fraction(decimals, unit) {
  if (decimals === undefined) return 0;
  const [parts, scale] = [BigInt(decimals) * BigInt(unit), 10n ** BigInt(decimals.length)];
  return decimals.length < 20 && parts % scale === 0n ? Number(parts / scale) : NaN;
}
