// The answers of the HTTP API, in the names of this package. Anything else is refused, so that nothing passes by a misunderstanding.
import { define, ownField } from "../errors.js";
import { Away } from "./server.js";

/** @typedef {(value: any, name: string) => any} Read reads the value of a field */
/** @typedef {{ name: string, as: string, read: Read, isOptional: boolean }} Field */

/** @type {(type: string) => Read} */
const typed = (type) => (value, name) => (typeof value === type ? value : wrong(name));
/** @type {Read} */
export const whole = (value, name) => (Number.isSafeInteger(value) && value >= 0 ? value : wrong(name));
/** @type {Read} the server writes it in units of 2^-32 */
const share = (value, name) => whole(value, name) / 2 ** 32;
export const text = typed("string");
const boolean = typed("boolean");

/** @type {(fields: Record<string, Read>, isOptional?: boolean) => Field[]} */
export const list = (fields, isOptional = false) => Object.entries(fields).map(([name, read]) => (
  { name, as: name.replace(/_(.)/g, (_, letter) => letter.toUpperCase()), read, isOptional }
));

const DECIDED = list({ allowed: boolean, limit: whole, remaining: whole, retry_after_us: whole, reset_after_us: whole });
const SOFT = list({ denied: boolean, would_allow: boolean, warned: boolean }, true);
const LIMIT = [...list({ name: text }), ...DECIDED, ...list({ shadow: boolean, warned: boolean, zone_data: text }, true)];
const BUDGET = list({ granted: whole, granted_at_us: whole, expires_at_us: whole });
/** @type {Read} */
const limits = (value, name) => (Array.isArray(value) ? value.map((limit) => fieldsOf(limit, LIMIT)) : wrong(name));
const ANSWER = [
  ...DECIDED, ...list({ at_us: whole, limits }), ...SOFT,
  ...list({
    lease: text, live: boolean, factor: share, would_factor: share, budget: (value) => fieldsOf(value, BUDGET), paid_by: text,
    id: text, reserved: whole, expires_at_us: whole, charged: whole, late: boolean,
  }, true),
];
const DEGRADED = [...list({ allowed: boolean, degraded: text }), ...list({ lease: text, id: text }, true)];

const EXPLANATION = [...ANSWER, ...list({ bound: text, text }), ...list({ limit_name: text }, true)];

/**
 * The answer to an operation under this policy.
 *
 * @type {(json: any, policy: string) => any}
 */
export const answerOf = (json, policy) => answered(json, policy, ANSWER);

/**
 * An answer, and why it is so.
 *
 * @type {(json: any, policy: string) => any}
 */
export const explanationOf = (json, policy) => answered(json, policy, EXPLANATION);

/** @type {(json: any, policy: string, fields: Field[]) => any} */
function answered(json, policy, fields) {
  if (typeof json !== "object" || json === null || !Object.hasOwn(json, "policy") || json.policy !== policy) wrong("policy");
  return fieldsOf(json, Object.hasOwn(json, "degraded") ? DEGRADED : fields);
}

/**
 * The µs between two renewals of the lease that an answer grants; 0 if it grants none.
 *
 * @type {(json: any) => number}
 */
export const renewEveryUs = (json) => whole(ownField(json, "renew_every_us") ?? 0, "renew_every_us");

/**
 * What `check` says of an answer.
 *
 * @type {(answer: any) => any}
 */
export function decisionOf({ atUs, limits, factor, wouldFactor, paidBy, ...decision }) {
  return decision;
}

/**
 * Whether a request took its cost. Under a policy in shadow a request passes that took nothing; under a limit in shadow it took its cost.
 *
 * @type {(answer: any) => boolean}
 */
export function tookCost(answer) {
  if (!answer.allowed || ownField(answer, "degraded") !== undefined) return false;
  const { limits } = answer;
  return ownField(answer, "wouldAllow") !== false || (limits.some(refusesInShadow) && limits.every((/** @type {any} */ limit) => limit.allowed || ownField(limit, "shadow")));
}

/** @type {(limit: any) => boolean} */
const refusesInShadow = (limit) => !limit.allowed && ownField(limit, "shadow") === true;

/** @type {(json: any, fields: Field[]) => any} */
export function fieldsOf(json, fields) {
  if (typeof json !== "object" || json === null) wrong("answer");
  const found = {};
  for (const { name, as, read, isOptional } of fields) {
    if (Object.hasOwn(json, name)) define(found, as, read(json[name], name));
    else if (!isOptional) wrong(name);
  }
  return found;
}

/** @type {(name: string) => never} */
export function wrong(name) {
  throw new Away(`server: expected an answer of the API, found another one: \`${name}\``);
}
