import { addHeaders } from "./core.js";
import { limitingNode } from "./node.js";

/**
 * A hook for Fastify: `onRequest`, or a later one whose requests have what `key` and `cost` read.
 *
 * @type {typeof import("./fastify.js").rateLimit}
 */
export function rateLimit(limiter, options) {
  /** @type {(request: any, reply: any) => { request: any, response: any, ip: string }} */
  const parts = (request, reply) => ({ request: request.raw, response: reply.raw, ip: request.ip });
  const limit = limitingNode(limiter, options, parts);
  return async (request, reply) => {
    const { headers, refusal, granted } = await limit(request, reply);
    /** @type {import("./core.js").AddHeader} */
    const append = (name, value) => {
      const before = reply.getHeader(name);
      reply.header(name, before === undefined ? value : `${before}, ${value}`);
    };
    addHeaders(headers, append, (name, value) => reply.header(name, value));
    if (refusal === undefined) {
      if (granted !== undefined) request.rateLimit = granted;
      return;
    }
    // bytes, because Fastify adds a charset to the type of a text
    return reply.code(refusal.status).send(new TextEncoder().encode(refusal.body));
  };
}

export default rateLimit;
