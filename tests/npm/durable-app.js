// A Worker with limiters on its own Durable Objects, or at a server, for the tests: a request says by which policies to decide, and what to ask.
import "./durable-trap.js";
import { Hono } from "hono";
import { DurableLimiter, Keys as OwnKeys } from "tidegate/durable-objects";
import { rateLimit } from "tidegate/hono";
import { RemoteLimiter } from "tidegate/remote";

import { replayByPromises } from "./replay.js";

/** The objects do what the tests need of them: they end, and they lie. */
export class Keys extends OwnKeys {
  ask(...given) {
    const { lie, calls } = globalThis;
    globalThis.calls = (calls ?? 0) + 1;
    globalThis.asked = given;
    if (lie === undefined) return super.ask(...given);
    if (lie === "throw") throw new Error("an object that lies");
    if (lie === "hang") return new Promise(() => {});
    return lie.reply;
  }

  abort() {
    this.ctx.abort("by a test");
  }

  answer(...given) {
    return super.ask(...given);
  }
}

const limiters = new Map();

function limiterOf(env, policy, options, nth = 0) {
  const name = JSON.stringify([policy, options, nth]);
  if (!limiters.has(name)) limiters.set(name, made(env, policy, options));
  return limiters.get(name);
}

function made(env, policy, options) {
  if (options?.url === undefined) return new DurableLimiter(policy, env.KEYS, options);
  return new RemoteLimiter({ policy, fetch: (...given) => env.SERVER.fetch(...given), ...options });
}

const told = ({ name, code, message, line }) => ({ error: { name, code, message, line } });

/** Does what a request asks: `[{ policy, options, nth, calls: [[method, ...arguments]] }]`. What one list asks is asked at once. */
async function ask(env, lists) {
  const answers = lists.map(async ({ policy, options, nth, calls, isWithoutObjects }) => {
    try {
      const limiter = isWithoutObjects ? new DurableLimiter(policy) : limiterOf(env, policy, options, nth);
      return await Promise.all(calls.map(async ([method, ...given]) => {
        try {
          return (await limiter[method](...given)) ?? null;
        } catch (error) {
          return told(error);
        }
      }));
    } catch (error) {
      return told(error);
    }
  });
  return Promise.all(answers);
}

const app = new Hono();
app.post("/ask", async (c) => c.json(await ask(c.env, await c.req.json())));
app.post("/replay", async (c) => {
  const { name, vector } = await c.req.json();
  const limiter = limiterOf(c.env, { policies: { [name]: vector.policy } });
  return c.json({ steps: await replayByPromises(limiter, name, vector) });
});
app.post("/lie", async (c) => {
  globalThis.lie = (await c.req.json()).lie;
  return c.json(null);
});
app.post("/trap", async (c) => {
  globalThis.trap = await c.req.json();
  return c.json(null);
});
app.post("/calls", (c) => {
  const { calls = 0 } = globalThis;
  globalThis.calls = 0;
  return c.json(calls);
});
app.post("/asked", (c) => c.json(globalThis.asked));
app.post("/abort", async (c) => {
  await c.env.KEYS.getByName((await c.req.json()).object).abort().catch(() => {});
  return c.json(null);
});
app.post("/raw", async (c) => {
  const { object, given } = await c.req.json();
  return c.json({ answer: await c.env.KEYS.getByName(object).answer(...given).catch(told) });
});
app.post("/refund", async (c) => {
  const { policy, key } = await c.req.json();
  const grant = await limiterOf(c.env, policy).decide(key, { cost: 3 });
  return c.json([grant.remaining, (await grant.refund(2)).remaining]);
});
app.post("/run", async (c) => {
  const { policy, key } = await c.req.json();
  const limiter = limiterOf(c.env, policy);
  const ran = await limiter.run(key, async () => (await limiter.peek(key)).remaining);
  return c.json([ran.value, (await limiter.peek(key)).remaining]);
});
/** Lets another request ask, and ends before its answer comes: the runtime then cancels it. */
app.post("/leave", async (c) => {
  const { lists } = await c.req.json();
  const limiter = limiterOf(c.env, lists[0].policy, lists[0].options);
  c.env.SELF.fetch("http://self/ask", { method: "POST", body: JSON.stringify(lists) }).catch(() => {});
  while (limiter.waiting === 0) await new Promise((resolve) => setTimeout(resolve, 1));
  return c.json(null);
});
app.post("/waiting", async (c) => {
  const { policy, options, closes } = await c.req.json();
  const limiter = limiterOf(c.env, policy, options);
  if (closes) void limiter.close();
  return c.json(limiter.waiting);
});
app.all("/limited/:name", (c, next) => {
  const policy = { limits: [{ algorithm: "fixed_window", limit: 2, period: "1h", start: "first" }], key: ["header:x-api-key"] };
  return rateLimit(limiterOf(c.env, policy, { prefix: c.req.param("name") }))(c, next);
}, (c) => c.text("served"));

export default app;
