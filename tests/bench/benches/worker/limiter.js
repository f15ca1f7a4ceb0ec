// A Worker of one's own with a limiter on its own objects: the same request and limit as `strict` of the Worker beside it.
import { env } from "cloudflare:workers";
import { DurableLimiter, Keys } from "./index.js";

export { Keys };

const limiter = new DurableLimiter({ limits: [{ algorithm: "token_bucket", capacity: 1_000_000, rate: "10/s" }] }, env.KEYS);

export default {
  async fetch(request) {
    const { key, cost } = await request.json();
    return Response.json(await limiter.check(key, { cost }));
  },
};
