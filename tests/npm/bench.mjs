// Nanoseconds per decision of the built package, best of seven runs. Not a test: node bench.mjs
import { Limiter } from "../../crates/wasm/npm/dist/node.js";

const RUNS = 7;
const CALLS = 2_000_000;
const NOW = 1_700_000_000_000_000;

const keys = Array.from({ length: 1_000 }, (_, index) => `user:${index}`);
const map = new Map();
const bucket = { algorithm: "token_bucket", capacity: 500, rate: "100/s" };
const limiter = new Limiter({ limits: [bucket] });
const several = new Limiter({
  limits: [bucket, { algorithm: "sliding_window", limit: 10_000, period: "1h", segments: 12 }],
});
const suppression = new Limiter({ limits: [{ algorithm: "suppression", rate: "100/s" }] });
const places = new Limiter({ limits: [{ algorithm: "concurrency", capacity: 16, time_to_live: "30s" }] });
let sink = 0; // so that no result may be optimized away

measure("Map get and set", (key) => map.set(key, (map.get(key) ?? 0) + 1));
measure("Date.now", () => { sink += Date.now(); });
measure("check, time passed in", (key, index) => { sink += limiter.check(key, { cost: 1, now: NOW + index }).remaining; });
measure("check, time by the clock", (key) => { sink += limiter.check(key).remaining; });
measure("check, two limits", (key, index) => { sink += several.check(key, { cost: 1, now: NOW + index }).remaining; });
measure("check, suppression", (key, index) => { sink += suppression.check(key, { cost: 1, now: NOW + index }).remaining; });
measure("decide", (key, index) => { sink += limiter.decide(key, { now: NOW + index }).remaining; }, CALLS / 20);
measure("acquire and release", (key, index) => {
  sink += places.release(key, places.acquire(key, { now: NOW + index }).lease, { now: NOW + index }).remaining;
}, CALLS / 20);

function measure(name, call, calls = CALLS) {
  let best = Infinity;
  for (let run = 0; run < RUNS; run++) {
    const start = performance.now();
    for (let index = 0; index < calls; index++) call(keys[index % keys.length], index);
    best = Math.min(best, ((performance.now() - start) * 1e6) / calls);
  }
  console.log(`${name.padEnd(26)} ${best.toFixed(0).padStart(5)} ns`);
}
