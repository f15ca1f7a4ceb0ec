// What the server says of a request behind middleware: `GET /v1/gate` answers with the response that a proxy would pass on.
import { coded } from "../errors.js";
import { middlewareOptions } from "../input.js";

/** @import { Admission } from "../index.js" */
/** @import { Reply } from "./server.js" */

/** The headers of a granted request, and those of a refusal. */
const [GRANTED, REFUSED] = [["ratelimit", "ratelimit-policy"], ["ratelimit", "ratelimit-policy", "retry-after", "cache-control", "content-type"]];

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
 * The options of middleware, without those that only a limiter with the policy has.
 *
 * @type {(options: unknown, among: { isLast: boolean } | undefined) => any}
 */
export function remoteMiddlewareOptions(options, among) {
  const read = middlewareOptions(options, among);
  const lacking = ["actual", "countIf", "ifUnknown", "headers"].find((name) => read[name] !== undefined);
  if (lacking !== undefined) throw coded("INVALID_OPTION", `\`options.${lacking}\`: expected none, because only a limiter of \`tidegate\` has it`);
  if (read.key === undefined) throw coded("INVALID_OPTION", "`options.key`: expected a function, because only the server knows the policy's sources; found none");
  if (among?.isLast === false) throw coded("INVALID_OPTION", "`limiters`: expected a RemoteLimiter last, because it gives nothing back; found it before another limiter");
  return read;
}

/**
 * What happens to a request; `undefined` if the reply does not say it.
 *
 * @type {(reply: Reply) => Admission | undefined}
 */
export function admissionOf({ status, headers, text }) {
  const kept = (/** @type {string[]} */ names) => [...headers].filter(([name]) => names.includes(name));
  // any other server may answer 204, too
  if (status === 204) return headers.get("cache-control") === "no-store" ? { headers: kept(GRANTED) } : undefined;
  const isProblem = headers.get("content-type") === "application/problem+json" && text.length <= MOST_PROBLEM;
  if (!isProblem || !isOfClient(text, status)) return undefined;
  return { headers: kept(REFUSED), refusal: { status, body: text } };
}

/** @type {(text: string, status: number) => boolean} */
function isOfClient(text, status) {
  try {
    const problem = { __proto__: null, ...JSON.parse(text) };
    return problem.status === status && status >= 400 && OF_CLIENTS.includes(problem.type);
  } catch {
    return false;
  }
}

/** @type {(passes: boolean) => Admission} */
export const unavailable = (passes) => (passes ? { headers: [] } : /** @type {any} */ (UNAVAILABLE));
