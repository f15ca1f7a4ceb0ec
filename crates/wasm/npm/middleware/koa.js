import { addHeaders } from "./core.js";
import { limitingNode } from "./node.js";

/**
 * Middleware for Koa.
 *
 * @type {typeof import("./koa.js").rateLimit}
 */
export function rateLimit(limiter, options) {
  const limit = limitingNode(limiter, options, ({ req, res, ip }) => ({ request: req, response: res, ip }));
  return async (context, next) => {
    const { headers, refusal, granted } = await limit(context);
    /** @type {import("./core.js").AddHeader} */
    const append = (name, value) => context.append(name, value);
    addHeaders(headers, append, (name, value) => context.set(name, value));
    if (refusal === undefined) {
      if (granted !== undefined) context.state.rateLimit = granted;
      return next();
    }
    context.status = refusal.status;
    context.body = refusal.body;
  };
}

export default rateLimit;
