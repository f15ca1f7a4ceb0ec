// The built package beside other limiters, in one run. Not a test: `cargo xtask bench npm`.
//
// A row has the median of five runs of nanoseconds per call, and its ratio to its baseline. With the argument `import MODULE`
// this script prints the milliseconds from the import of a limiter to its first decision, and with `memory MODULE` the bytes
// of a million keys; both need a process of their own.
import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

const require = createRequire(new URL("./loaders/", import.meta.url));
const RUNS = 5;
const NOW = 1_700_000_000_000_000;
const OURS = "../../crates/wasm/npm/dist/node/index.js";
const BUCKET = { algorithm: "token_bucket", capacity: 500, rate: "100/s" };
const FLEXIBLE = { points: 500, duration: 5 };

const names = (count) => Array.from({ length: count }, (_, index) => `user:${index}`);
const median = (numbers) => numbers.sort((one, other) => one - other)[numbers.length >> 1];
let sink = 0; // so that no result may be optimized away

const [what, whose] = process.argv.slice(2);
if (what === "import") console.log(await first(whose));
else if (what === "memory") console.log(await memory(whose));
else await table();

async function table() {
  const { Limiter } = await import(OURS);
  const { RateLimiterMemory } = require("rate-limiter-flexible");
  const { InMemoryRateLimiter } = require("rolling-rate-limiter");
  const limiter = new Limiter({ limits: [BUCKET] });
  const log = new Limiter({ limits: [{ algorithm: "sliding_log", rates: ["10/s"] }] });
  const places = new Limiter({ limits: [{ algorithm: "concurrency", capacity: 16, time_to_live: "30s" }] });
  const [thousand, million] = [names(1_000), names(1_000_000)];

  const map = new Map();
  const flexible = new RateLimiterMemory(FLEXIBLE);
  const rolling = new InMemoryRateLimiter({ interval: 1_000, maxInInterval: 10 });
  const consume = async (key) => { sink += (await flexible.consume(key).catch((refusal) => refusal)).remainingPoints; };
  const check = (key) => { sink += limiter.check(key).remaining; };

  const inMap = await measure("Map get and set", thousand, (key) => map.set(key, (map.get(key) ?? 0) + 1));
  const consumed = await measure("rate-limiter-flexible, consume, 1,000 keys", thousand, consume, 200_000);
  const { RateLimiterMemory: Same } = await import("../../crates/wasm/npm/dropin/rate-limiter-flexible.js");
  const same = new Same(FLEXIBLE);
  const consumeSame = async (key) => { sink += (await same.consume(key).catch((refusal) => refusal)).remainingPoints; };
  await measure("tidegate/rate-limiter-flexible, consume, the same", thousand, consumeSame, 200_000, [consumed]);
  const checked = await measure("check, 1,000 keys", thousand, check, 1_000_000, [consumed, 0.15], [inMap, 3]);
  await measure("decide", thousand, (key) => { sink += limiter.decide(key).remaining; }, 1_000_000, [checked, 3]);
  await measure("acquire and release", thousand, (key) => {
    sink += places.release(key, places.acquire(key).lease).remaining;
  }, 100_000);
  const reserving = new Limiter({ limits: [BUCKET], reservations: { most: 16, remember: "1ms" } });
  await measure("reserve and commit", thousand, (key) => {
    sink += reserving.commit(key, reserving.reserve(key, { cost: 2 }).id, 1).charged;
  }, 100_000, [checked, 2.2]);
  const rolled = await measure("rolling-rate-limiter, 10 a second", thousand, async (key) => { sink += await rolling.limit(key); }, 100_000);
  await measure("check, sliding log of 10", thousand, (key) => { sink += log.check(key).remaining; }, 1_000_000, [rolled, 0.05]);
  const many = new Limiter({ limits: [BUCKET] }, { maxBytes: 2 ** 30 });
  const consumedAll = await measure("rate-limiter-flexible, consume, 1,000,000 keys", million, consume, 1_000_000);
  await measure("check, 1,000,000 keys", million, (key) => { sink += many.check(key).remaining; }, 1_000_000, [consumedAll, 0.2]);

  const alone = (task, module) => Number(execFileSync(process.execPath, ["--expose-gc", fileURLToPath(import.meta.url), task, module]));
  const bytes = ["rate-limiter-flexible", "tidegate"].map((module) => alone("memory", module));
  row("rate-limiter-flexible, a million keys", bytes[0] / 1e6, "MB");
  row("tidegate, a million keys", bytes[1] / 1e6, "MB", [bytes[0] / 1e6, 0.5]);
  const started = { "rate-limiter-flexible": [], tidegate: [] };
  for (let run = 0; run < 15; run++) for (const [module, times] of Object.entries(started)) times.push(alone("import", module));
  const [theirs, ours] = Object.values(started).map(median);
  row("rate-limiter-flexible, import to first decision", theirs, "ms");
  row("tidegate, import to first decision", ours, "ms", [theirs, 1]);
}

async function measure(name, keys, call, calls = 1_000_000, ...baselines) {
  const times = [];
  for (let run = 0; run < RUNS; run++) {
    const start = performance.now();
    for (let index = 0; index < calls; index++) {
      const wait = call(keys[index % keys.length]);
      if (wait instanceof Promise) await wait;
    }
    times.push(((performance.now() - start) * 1e6) / calls);
  }
  return row(name, median(times), "ns", ...baselines);
}

function row(name, value, unit, ...baselines) {
  const ratios = baselines.map(([of, goal]) => `${(value / of).toFixed(3)}${goal === undefined ? "" : ` (goal ${goal})`}`).join(", ");
  console.log(`${name.padEnd(50)} ${value.toFixed(unit === "ns" ? 0 : 1).padStart(7)} ${unit}  ${ratios}`);
  return value;
}

async function first(module) {
  const start = performance.now();
  if (module === "tidegate") new (await import(OURS)).Limiter({ limits: [BUCKET] }).check("user:42");
  else await new (require(module).RateLimiterMemory)(FLEXIBLE).consume("user:42");
  return performance.now() - start;
}

async function memory(module) {
  const keys = names(1_000_000);
  const used = () => {
    globalThis.gc();
    const { heapUsed, external, arrayBuffers } = process.memoryUsage();
    return heapUsed + external + arrayBuffers;
  };
  const before = used();
  if (module === "tidegate") {
    const { Limiter } = await import(OURS);
    const limiter = new Limiter({ limits: [BUCKET] }, { maxBytes: 2 ** 30 });
    for (const key of keys) limiter.check(key);
    return used() - before + limiter.size * 0;
  }
  const limiter = new (require(module).RateLimiterMemory)({ ...FLEXIBLE, duration: 600 });
  for (const key of keys) await limiter.consume(key);
  return used() - before;
}
