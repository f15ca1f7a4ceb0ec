// The program of every project: all vectors, by each entry of the package as its user imports it.
import preferred, { Limiter, Reporter } from "tidegate";
import { RemoteLimiter } from "tidegate/remote";
import { Limiter as SlimLimiter, init } from "tidegate/slim";
import { toml } from "tidegate/toml";
import bytes from "#module";
import vectors from "#vectors";

import { replay } from "../replay.js";

// in the global scope, where Workers allow neither timers nor random numbers
const limits = [{ algorithm: "fixed_window", limit: 1, period: "1h" }];
const limiter = new Limiter({ limits });
const remote = new RemoteLimiter({ url: "https://limiter.example", policy: "api" });
const fromToml = new Limiter(toml('limits = [{ algorithm = "fixed_window", limit = 1, period = "1h" }]'));

/** `module` is what `tidegate/slim` needs: a module where the runtime compiles no bytes. */
export function run(module = bytes) {
  init(module);
  if (preferred !== Limiter) throw new Error("expected the class `Limiter` as the default export");
  for (const one of [limiter, fromToml, new SlimLimiter({ limits })]) {
    one.reset("user:42");
    if (!one.check("user:42").allowed || one.check("user:42").allowed) throw new Error("expected one grant");
  }
  if (remote.waiting !== 0) throw new Error("expected no call of a server");
  if (!new Reporter({ limit: "10/s" }).decide().admitted) throw new Error("expected a request to be admitted");
  const replays = [Limiter, SlimLimiter].map((Class) => {
    let steps = 0;
    for (const [name, vector] of Object.entries(vectors)) steps += replay(Class, name, vector);
    return steps;
  });
  return `${Object.keys(vectors).length} vectors, ${replays.join(" + ")} steps`;
}
