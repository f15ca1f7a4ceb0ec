import { addHeaders, limiting } from "./core.js";
import { holdUntilEnd, nodeFacts } from "./node.js";
import { fetchFacts, holdUntilRead } from "./web.js";

/**
 * Middleware for Hono. On Node the address of the client is known; elsewhere `options.ip` must say where it is.
 *
 * @type {typeof import("./hono.js").rateLimit}
 */
export function rateLimit(limiter, options) {
  const limit = limiting(limiter, options, ({ req, env }) => {
    const facts = fetchFacts(req.raw);
    return env?.incoming === undefined ? facts : { ...facts, ip: nodeFacts(env.incoming).ip };
  });
  return async (context, next) => {
    const { headers, refusal, held, granted } = await limit(context);
    if (refusal !== undefined) return new Response(refusal.body, { status: refusal.status, headers: /** @type {any} */ (headers) });
    if (granted !== undefined) context.set("rateLimit", granted);
    const respond = async () => {
      await next();
      /** @type {import("./core.js").AddHeader} */
      const append = (name, value) => context.header(name, value, { append: true });
      addHeaders(headers, append, (name, value) => context.header(name, value));
      return context.res;
    };
    const outgoing = context.env?.outgoing; // Node itself tells the end of a response
    // but the meter finds the headers only in the response
    if (held === undefined || (outgoing !== undefined && held.meter === undefined)) {
      if (held !== undefined) holdUntilEnd(outgoing, held);
      await respond();
    } else {
      context.res = await holdUntilRead(context.req.raw, respond, held);
    }
  };
}

export default rateLimit;
