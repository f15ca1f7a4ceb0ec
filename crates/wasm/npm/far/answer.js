// Answers of a store. If it has not decided, the policy's `on_error` has, and an answer has no numbers.
import { addFlagged, readAnswer, readReservation } from "../answer.js";
import { define } from "../errors.js";

/** @import { Source as Read } from "../answer.js" */
/** @typedef {Read & { degraded?: string }} Source */

/** @type {(source: Source) => any} */
export function decisionOf(source) {
  const { numbers, granted, isShadow } = source;
  if (source.degraded !== undefined) return degradedOf(source);
  const decision = {
    allowed: granted || isShadow,
    limit: numbers[0],
    remaining: numbers[1],
    retryAfterUs: numbers[2],
    resetAfterUs: numbers[3],
  };
  addFlagged(decision, numbers, granted, isShadow);
  return decision;
}

/** @type {(source: Source) => any} */
export function answerOf(source) {
  if (source.degraded === undefined) return readAnswer(source);
  const answer = degradedOf(source);
  if (source.lease !== undefined) define(answer, "lease", source.lease);
  return answer;
}

/** @type {(source: Source) => any} */
export function reservationOf(source) {
  if (source.degraded === undefined) return readReservation(source);
  const answer = degradedOf(source);
  define(answer, "id", source.lease);
  return answer;
}

/** @type {(source: Source) => any} */
const degradedOf = ({ granted, isShadow, degraded }) => ({ allowed: granted || isShadow, degraded });
