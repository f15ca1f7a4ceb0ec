// Handlers that take a `Request` and return a `Response`.
import { addHeaders, limiting } from "./core.js";
import { fetchFacts, holdUntilRead } from "./web.js";

export { MemoryStore } from "./store.js";

/**
 * The handler behind a limiter. A request has no address by itself, so `options.ip` must say where it is.
 *
 * @type {(limiter: import("./options.js").Limiters | import("./options.js").LimitersOf, handler: (...request: any[]) => any, options?: import("./options.js").MiddlewareOptions) => (...request: any[]) => Promise<any>}
 */
export function rateLimit(limiter, handler, options) {
  const limit = limiting(limiter, options, fetchFacts);
  return async (request, ...rest) => {
    const { headers, refusal, held, granted } = await limit(request, ...rest);
    if (refusal !== undefined) return new Response(refusal.body, { status: refusal.status, headers: /** @type {any} */ (headers) });
    if (granted !== undefined) request.rateLimit = granted;
    const respond = async () => withHeaders(await handler(request, ...rest), headers);
    return held === undefined ? respond() : holdUntilRead(request, respond, held);
  };
}

export default rateLimit;

/** @type {(response: Response, headers: import("./options.js").Admission["headers"]) => Response} */
function withHeaders(response, headers) {
  if (typeof response?.headers !== "object") throw new TypeError(`\`handler\`: expected a Response, found ${response === null ? "null" : typeof response}`);
  if (headers.length === 0 || response.type === "error") return response; // a network error has no headers
  const changed = new Response(response.body, response); // the headers of a response may be immutable
  /** @type {import("./core.js").AddHeader} */
  const append = (name, value) => changed.headers.append(name, value);
  addHeaders(headers, append, (name, value) => changed.headers.set(name, value));
  return changed;
}
