// The exports of the npm package as `tidegate/worker`: the Worker, and its calls for other Workers.
import { WorkerEntrypoint } from "cloudflare:workers";
import { handler } from "./worker.js";

export { Keys, Policies, tidegate } from "./worker.js";

/**
 * The decision API for a Worker whose service binding names this class. The binding itself is the permission, so these
 * calls need no token. They answer the JSON of the HTTP API, and throw the problem that HTTP would answer.
 */
export class Tidegate extends WorkerEntrypoint {
  /** The HTTP API. The request needs its token, because it may be one that a client has sent. */
  fetch(request) {
    return handler.fetch(request, this.env, this.ctx);
  }

  /** One check, or a batch: `{ checks: [...] }`. */
  check(check) {
    return call(this, "POST", "/v1/check", check);
  }

  /** Whether a request would pass. */
  peek({ policy, key, cost, class: name }) {
    const asked = new URLSearchParams();
    if (cost != null) asked.set("cost", cost);
    if (name != null) asked.set("class", name);
    return call(this, "GET", `/v1/keys/${escaped({ policy })}/${escaped({ key })}?${asked}`);
  }

  acquire(check) {
    return call(this, "POST", "/v1/leases", check);
  }

  renew({ lease, ...body }) {
    return call(this, "PUT", `/v1/leases/${escaped({ lease })}`, body);
  }

  release({ lease, policy, key }) {
    const query = `policy=${escaped({ policy })}&key=${escaped({ key })}`;
    return call(this, "DELETE", `/v1/leases/${escaped({ lease })}?${query}`);
  }

  settle(settlement) {
    return call(this, "POST", "/v1/settle", settlement);
  }
}

/**
 * Makes the same exchange as over HTTP. The scheme says that the request is for the API, whatever the routes of the policy
 * file match; no upstream gets the token. The calls above need no more than the right to decide.
 */
async function call({ env, ctx }, method, target, body) {
  const token = env.TIDEGATE_TOKEN || env.TIDEGATE_ADMIN_TOKEN;
  const headers = new Headers(token ? { authorization: `Bearer ${token}` } : {});
  const text = JSON.stringify(body)?.replaceAll("\ufffd", "\\ufffd"); // a body must not contain it
  const request = new Request(`rpc://tidegate${target}`, { method, headers, body: text });
  const response = await handler.fetch(request, env, ctx);
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.detail ?? answer.title);
  return answer;
}

/** A field as part of a URL, which would resolve `.` and `..` even percent-encoded. */
function escaped(field) {
  const [[name, value]] = Object.entries(field);
  if (typeof value === "string" && value !== "." && value !== "..") return encodeURIComponent(value);
  const found = typeof value === "string" ? `\`${value}\`` : typeof value;
  throw new TypeError(`\`${name}\`: expected a string other than \`.\` and \`..\`, found ${found}`);
}
