import { addHeaders } from "./core.js";
import { limitingNode } from "./node.js";

/**
 * Middleware for Express, and for other servers that call `(request, response, next)`.
 *
 * @type {typeof import("./express.js").rateLimit}
 */
export function rateLimit(limiter, options) {
  const limit = limitingNode(limiter, options, (request, response) => ({ request, response, ip: request.ip }));
  return (request, response, next) => {
    limit(request, response).then(({ headers, refusal, granted }) => {
      /** @type {import("./core.js").AddHeader} */
      const append = (name, value) => response.appendHeader(name, value);
      addHeaders(headers, append, (name, value) => response.setHeader(name, value));
      if (refusal === undefined) {
        if (granted !== undefined) request.rateLimit = granted;
        return next();
      }
      response.statusCode = refusal.status;
      response.end(refusal.body);
    }).catch(next);
  };
}

export default rateLimit;
