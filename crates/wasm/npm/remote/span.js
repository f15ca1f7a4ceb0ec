// Spans of time as the policy file writes them. `units.rs` of the gate has the same rules, and a test compares the two.
import { coded } from "../errors.js";
import { requireText, requireWhole, shortened, wrongType } from "../input.js";

/**
 * A span of time in microseconds: a number of them, or a text such as `"1m30s"`.
 *
 * @type {(field: string, span: unknown) => number}
 */
export function spanUs(field, span) {
  if (typeof span === "string") {
    requireText(field, "INVALID_REQUEST", span);
    const micros = microsOf(span);
    if (micros !== undefined) return micros;
    throw coded("INVALID_REQUEST", `\`${field}\`: expected ${SPAN}; found ${JSON.stringify(shortened(span))}`);
  }
  if (typeof span !== "number") throw wrongType(field, "INVALID_REQUEST", span, "a number or a string");
  requireWhole(field, "INVALID_REQUEST", span, 0, Number.MAX_SAFE_INTEGER);
  return span;
}

/**
 * Numbers with their units, the largest unit first. Only the last number may have decimals.
 *
 * @type {(text: string) => number | undefined}
 */
function microsOf(text) {
  const part = /(\d+)(?:\.(\d{1,19}))? *([a-z]+)( *)/gy;
  let larger = MOST;
  let span = 0n;
  for (let at = 0; at < text.length; at = part.lastIndex) {
    const [, count, decimals = "", name, spaces] = part.exec(text) ?? [];
    const unit = UNITS.get(name);
    const isLast = part.lastIndex === text.length;
    if (unit === undefined || unit >= larger || (isLast ? spaces !== "" : decimals !== "")) return undefined;
    const [micros, scale] = [BigInt(count + decimals) * unit, 10n ** BigInt(decimals.length)];
    if (micros % scale !== 0n) return undefined;
    span += micros / scale;
    larger = unit;
  }
  return span > 0n && span <= MOST ? Number(span) : undefined;
}

const UNITS = new Map([
  ["us", 1n], ["ms", 1_000n], ["s", 1_000_000n], ["min", 60_000_000n], ["m", 60_000_000n], ["h", 3_600_000_000n], ["d", 86_400_000_000n],
]);
const MOST = BigInt(Number.MAX_SAFE_INTEGER);
const SPAN = 'a span of time in whole microseconds, above 0 and at most 285 years, such as "90s", "1.5s" or "1m30s", '
  + "with the units d, h, m, s, ms, us";
