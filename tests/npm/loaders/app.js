// The program of every project: all vectors, by the package as its user imports it.
import preferred, { Limiter, Reporter } from "tidegate";
import vectors from "#vectors";

import { replay } from "../replay.js";

// in the global scope, where Workers allow neither timers nor random numbers
const limiter = new Limiter({ limits: [{ algorithm: "fixed_window", limit: 1, period: "1h" }] });

export function run() {
  if (preferred !== Limiter) throw new Error("expected the class `Limiter` as the default export");
  limiter.reset("user:42");
  if (!limiter.check("user:42").allowed || limiter.check("user:42").allowed) throw new Error("expected one grant");
  if (!new Reporter({ limit: "10/s" }).decide().admitted) throw new Error("expected a request to be admitted");
  let steps = 0;
  for (const [name, vector] of Object.entries(vectors)) steps += replay(Limiter, name, vector);
  return `${Object.keys(vectors).length} vectors, ${steps} steps`;
}
