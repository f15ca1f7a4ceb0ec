// The peer of the Worker: the same request, the same answer and a token bucket in an object by RPC, in JavaScript as a
// careful hand writes it for one policy. It has no batches, no other limits, no errors with a place, and keeps its
// state in memory or puts it with each grant.
import { DurableObject } from "cloudflare:workers";

const CAPACITY = 1_000_000;
const PER_MS = 0.01; // 10 per second

export class Bucket extends DurableObject {
  level = CAPACITY;
  last = Date.now();

  take(cost, puts) {
    const now = Date.now();
    this.level = Math.min(CAPACITY, this.level + (now - this.last) * PER_MS);
    this.last = now;
    const allowed = this.level >= cost;
    if (allowed) this.level -= cost;
    if (allowed && puts) this.ctx.storage.put("state", [this.level, this.last]);
    return [allowed, this.level, now];
  }
}

function answer(policy, allowed, level, now) {
  const remaining = Math.floor(level);
  const reset = Math.ceil((CAPACITY - level) / PER_MS);
  const decision =
    `"allowed":${allowed},"limit":${CAPACITY},"remaining":${remaining},` +
    `"retry_after_us":0,"reset_after_us":${reset * 1000}`;
  const body = `{"policy":"${policy}",${decision},"at_us":${now * 1000},"limits":[{"name":"${policy}",${decision}}]}`;
  return new Response(body, {
    headers: {
      "content-type": "application/json",
      "cache-control": "no-store",
      "ratelimit-policy": `"${policy}";q=${CAPACITY};w=100000`,
      ratelimit: `"${policy}";r=${remaining};t=${Math.ceil(reset / 1000)}`,
    },
  });
}

export default {
  async fetch(request, env) {
    const { url } = request;
    const path = url.slice(url.indexOf("/", 8));
    if (path === "/nothing") return new Response("ok");
    if (path === "/healthz") {
      return new Response('{"status":"ok"}', {
        headers: { "content-type": "application/json", "cache-control": "no-store" },
      });
    }
    const { policy, key, cost = 1 } = await request.json();
    if (path === "/empty") return answer(policy, true, CAPACITY, Date.now());
    const stub = env.BUCKETS.getByName(key);
    const [allowed, level, now] = await stub.take(cost, path === "/put");
    return answer(policy, allowed, level, now);
  },
};
