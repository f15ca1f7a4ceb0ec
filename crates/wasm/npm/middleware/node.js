// Requests and responses of `node:http`.
import { limiting } from "./core.js";

/**
 * Returns a function that decides on a request and holds its lease until the response has ended or the client is gone.
 * `parts` finds Node's own `{ request, response }` in the arguments of the middleware, and the address that the framework tells.
 *
 * @type {(limiter: import("./options.js").Limiter, options: import("./options.js").MiddlewareOptions | undefined, parts: (...all: any[]) => { request: any, response?: any, ip?: string }) => (...all: any[]) => Promise<import("./core.js").Said>}
 */
export function limitingNode(limiter, options, parts) {
  const limit = limiting(limiter, options, (...all) => {
    const { request, ip } = parts(...all);
    return ip === undefined ? nodeFacts(request) : { ...nodeFacts(request), ip };
  });
  return async (...all) => {
    const said = await limit(...all);
    if (said.held !== undefined) holdUntilEnd(parts(...all).response, said.held);
    return said;
  };
}

/** @type {(response: any, held: import("./core.js").Held) => void} */
export function holdUntilEnd(response, held) {
  const done = () => held.done();
  if (response.destroyed || response.writableFinished) done();
  response.once("finish", done);
  response.once("close", done);
  held.renewUntil = Infinity; // the response always ends or closes
}

/** @type {(request: any) => import("./core.js").Facts} */
export function nodeFacts(request) {
  const { headers } = request;
  const target = request.originalUrl ?? request.url; // a router of Express removes its own path from `url`
  const start = target.indexOf("?");
  return {
    header: (name) => (Object.hasOwn(headers, name) ? String(headers[name]) : undefined),
    query: start < 0 ? "" : target.slice(start + 1),
    ip: request.socket?.remoteAddress,
  };
}
