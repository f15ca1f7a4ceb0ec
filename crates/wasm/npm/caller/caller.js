// A Worker that asks Tidegate through a service binding before it serves a request.

/** @import { Check, Decision, Tidegate } from "tidegate/worker" */
/** @typedef {{ TIDEGATE: Pick<Tidegate, "check"> & { fetch: typeof fetch }, TIDEGATE_TOKEN: string }} Env */

export default {
  /** @type {(request: Request, env: Env) => Promise<Response>} */
  async fetch(request, env) {
    const key = `ip:${request.headers.get("cf-connecting-ip")}`;
    const ask = new URL(request.url).pathname === "/fetch" ? byFetch : byRpc;
    const { allowed, denied, degraded, retry_after_us } = await ask(env, { policy: "api", key });
    if (allowed) return new Response("served\n");
    if (denied) return new Response("forbidden\n", { status: 403 }); // no wait helps
    if (degraded) return new Response("try again later\n", { status: 503 }); // nobody knows how long to wait
    const headers = { "retry-after": String(Math.ceil(retry_after_us / 1_000_000)) };
    return new Response("too many requests\n", { status: 429, headers });
  },
};

/**
 * By RPC: the binding is the permission, and a problem is thrown.
 *
 * @type {(env: Env, check: Check) => Promise<Decision>}
 */
function byRpc(env, check) {
  return env.TIDEGATE.check(check);
}

/**
 * By fetch: every call of the HTTP API, with its token.
 *
 * @type {(env: Env, check: Check) => Promise<Decision>}
 */
async function byFetch(env, check) {
  const headers = { authorization: `Bearer ${env.TIDEGATE_TOKEN}` };
  const response = await env.TIDEGATE.fetch("https://tidegate/v1/check", {
    method: "POST",
    headers,
    body: JSON.stringify(check),
  });
  if (!response.ok) throw new Error(await response.text());
  return response.json();
}
