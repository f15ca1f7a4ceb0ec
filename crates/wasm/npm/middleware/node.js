// Requests and responses of `node:http`.
import { limiting } from "./core.js";

/**
 * Returns a function that decides on a request and holds its lease until the response has ended or the client is gone.
 * `parts` finds Node's own `{ request, response }` in the arguments of the middleware, and the address that the framework tells.
 *
 * @type {(limiter: import("./options.js").Limiters | import("./options.js").LimitersOf, options: import("./options.js").MiddlewareOptions | undefined, parts: (...all: any[]) => { request: any, response?: any, ip?: string }) => (...all: any[]) => Promise<import("./limiting.js").Said>}
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

/** @type {any} what Node has, and TypeScript does not know here */
const { Buffer } = globalThis;

/** @type {(response: any, held: import("./limiting.js").Held) => void} */
export function holdUntilEnd(response, held) {
  if (held.meter !== undefined) watch(response, held);
  if (response.destroyed || response.writableFinished) held.done(1);
  response.once("finish", () => held.done(0));
  response.once("close", () => held.done(1));
  held.renewUntil = Infinity; // the response always ends or closes
}

/**
 * Shows the meter what is written, before it is written.
 *
 * @type {(response: any, held: import("./limiting.js").Held) => void}
 */
function watch(response, held) {
  /** @type {boolean | undefined} */
  let reads;
  let within = false; // the `end` of HTTP/2 calls `write`
  /** @type {Record<string, unknown>} headers that only `writeHead` gets, which Node may keep to itself */
  let given = {};
  const { writeHead } = response;
  /** @type {(this: unknown, status: number, ...rest: any[]) => any} */
  response.writeHead = function (status, ...rest) {
    const fields = rest.findLast((one) => typeof one === "object" && one !== null) ?? {};
    const pairs = Array.isArray(fields) ? pairsOf(fields) : Object.entries(fields);
    given = Object.fromEntries(pairs.map(([name, value]) => [String(name).toLowerCase(), value]));
    return writeHead.call(this, status, ...rest);
  };
  /** @type {(name: string) => unknown} */
  const header = (name) => {
    const value = (Object.hasOwn(given, name) ? given[name] : undefined) ?? response.getHeader(name);
    return value === undefined ? undefined : String(value);
  };
  /** @type {(name: "write" | "end") => void} */
  const wrap = (name) => {
    const call = response[name];
    /** @type {(this: unknown, chunk?: any, encoding?: any, ...rest: any[]) => any} */
    response[name] = function (chunk, encoding, ...rest) {
      if (within) return call.call(this, chunk, encoding, ...rest);
      within = true;
      try {
        reads ??= held.meter?.answered(response.statusCode, header);
        if (reads && chunk && typeof chunk !== "function") {
          held.meter?.push(typeof chunk === "string" ? Buffer.from(chunk, typeof encoding === "string" ? encoding : "utf8") : chunk);
        }
        return call.call(this, chunk, encoding, ...rest);
      } finally {
        within = false;
      }
    };
  };
  wrap("write");
  wrap("end");
}

/**
 * The names and values of headers in an array: in pairs, or one after another.
 *
 * @type {(fields: any[]) => [unknown, unknown][]}
 */
function pairsOf(fields) {
  if (Array.isArray(fields[0])) return fields;
  /** @type {[unknown, unknown][]} */
  const pairs = [];
  for (let at = 0; at < fields.length; at += 2) pairs.push([fields[at], fields[at + 1]]);
  return pairs;
}

/** @type {(request: any) => import("./limiting.js").Facts} */
export function nodeFacts(request) {
  const { method, headers } = request;
  const target = request.originalUrl ?? request.url; // a router of Express removes its own path from `url`
  const start = target.indexOf("?");
  return {
    method,
    header: (name) => (Object.hasOwn(headers, name) ? String(headers[name]) : undefined),
    query: start < 0 ? "" : target.slice(start + 1),
    ip: request.socket?.remoteAddress,
  };
}
