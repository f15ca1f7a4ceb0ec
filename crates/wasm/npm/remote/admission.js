// What the server says of a request behind middleware: `POST /v1/admit`.
import { coded } from "../errors.js";
import { middlewareOptions } from "../input.js";
import { fieldsOf, list, text, whole, wrong } from "./answer.js";
import { parsed } from "./server.js";

/** @import { Admission, Metering } from "../index.js" */
/** @import { Read } from "./answer.js" */
/** @import { Reply } from "./server.js" */

/** The headers that a client gets. */
const HEADER = /^((x-)?ratelimit(-[a-z]+)?|retry-after|cache-control|content-type)$/;

/** The problems that are the client's own. Any other says that the middleware is set up wrongly, or comes from elsewhere. */
const OF_CLIENTS = [
  "urn:tidegate:invalid-key",
  "urn:tidegate:cost-exceeds-capacity",
  "urn:tidegate:denied",
  "https://iana.org/assignments/http-problem-types#quota-exceeded",
  "https://iana.org/assignments/http-problem-types#abnormal-usage-detected",
  "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
];

/** The longest problem that a client gets. */
const MOST_PROBLEM = 16_384;

/** What a client gets if nobody decides, and requests do not pass then. */
const UNAVAILABLE = {
  headers: [["cache-control", "no-store"], ["content-type", "application/problem+json"]],
  refusal: {
    status: 503,
    body: JSON.stringify({ type: OF_CLIENTS[5], title: "Temporarily reduced capacity", status: 503, detail: "the rate limit cannot be asked" }),
  },
};

/**
 * The options of middleware, with what reads the true cost if the server is to commit it.
 *
 * @type {(options: unknown, among: { isLast: boolean } | undefined, metering: Metering | undefined) => any}
 */
export function remoteMiddlewareOptions(options, among, metering) {
  const read = middlewareOptions(options, among);
  if (read.metering !== undefined) {
    if (metering === undefined && among === undefined) throw coded("INVALID_OPTION", "`options.metering` of the RemoteLimiter: expected `metering` of `tidegate` beside `actual` and `countIf`, found none");
    read.metering = metering?.(read.metering); // in a list, those without it take the cost of their policy
  }
  if (read.key === undefined) throw coded("INVALID_OPTION", "`options.key`: expected a function, because only the server knows the policy's sources; found none");
  return read;
}

/**
 * What happens to a request; `undefined` if the reply does not say it.
 *
 * @type {(reply: Reply, policy: string) => Admission | undefined}
 */
export function admissionOf({ status, headers, text }, policy) {
  if (status === 200) return admissionIn(text, policy);
  const isProblem = headers.get("content-type") === "application/problem+json" && isOfClient(text, status);
  if (!isProblem) return undefined;
  return { headers: [...headers].filter(([name]) => HEADER.test(name)), refusal: { status, body: text } };
}

/** @type {Read} */
const headers = (value, name) => (Array.isArray(value) ? value.map((header) => {
  const { name, value } = fieldsOf(header, HEADER_FIELDS);
  return [HEADER.test(name) ? name : wrong("headers"), value];
}) : wrong(name));
/** @type {Read} */
const refusal = (value) => {
  const found = fieldsOf(value, REFUSAL);
  return isOfClient(found.body, found.status) ? found : wrong("refusal");
};
const [HEADER_FIELDS, REFUSAL] = [list({ name: text, value: text }), list({ status: whole, body: text })];
const [LEASE, RESERVATION, GRANT] = [list({ name: text, renew_every_us: whole }), list({ id: text, units: whole }), list({ at_us: whole, units: whole })];
const ADMISSION = [
  ...list({ policy: text, headers }),
  ...list({
    refusal, lease: (value) => fieldsOf(value, LEASE), reservation: (value) => fieldsOf(value, RESERVATION), grant: (value) => fieldsOf(value, GRANT),
    remaining: whole,
  }, true),
];

/** @type {(text: string, policy: string) => Admission} */
function admissionIn(text, policy) {
  const { policy: own, ...admission } = fieldsOf(parsed(text), ADMISSION);
  return own === policy ? admission : wrong("policy");
}

/** @type {(text: string, status: number) => boolean} */
function isOfClient(text, status) {
  if (text.length > MOST_PROBLEM || status < 400) return false;
  try {
    const problem = { __proto__: null, ...JSON.parse(text) };
    return problem.status === status && OF_CLIENTS.includes(problem.type);
  } catch {
    return false;
  }
}

/** @type {(passes: boolean, why: string) => Admission} */
export const unavailable = (passes, why) => ({ .../** @type {Admission} */ (passes ? { headers: [] } : UNAVAILABLE), degraded: why });
