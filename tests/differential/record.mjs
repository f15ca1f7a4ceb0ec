// Records how other libraries decide with windows that start at a key's first request:
//   node tests/differential/record.mjs > tests/differential/first.json
// The time is given. A request comes just before the end of a window, at its end, or at random.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { mock } from "node:test";

const require = createRequire(new URL("../npm/loaders/", import.meta.url));
const { MemoryStore } = require("express-rate-limit");
const { RateLimiterMemory, RateLimiterRes } = require("rate-limiter-flexible");

const START_MS = 1_700_000_000_123;
const STEPS = 300;
const LIMITS = [[1, 1], [5, 1], [10, 60], [3, 3_600]]; // requests, seconds

/** How each library counts a request: the requests in the window with this one, and the time to its end in ms. */
const LIBRARIES = {
  "express-rate-limit"(_, seconds) {
    const store = new MemoryStore();
    store.init({ windowMs: seconds * 1000 });
    return async () => {
      const { totalHits, resetTime } = await store.increment("key");
      return [totalHits, resetTime.getTime() - Date.now()];
    };
  },
  "rate-limiter-flexible"(points, duration) {
    const limiter = new RateLimiterMemory({ points, duration });
    return async () => {
      const result = await limiter.consume("key").catch((refusal) => refusal);
      if (!(result instanceof RateLimiterRes)) throw result;
      return [result.consumedPoints, result.msBeforeNext];
    };
  },
};

const recorded = [];
for (const [library, make] of Object.entries(LIBRARIES)) {
  for (const [limit, seconds] of LIMITS) {
    mock.timers.enable({ apis: ["Date", "setTimeout", "setInterval"], now: START_MS });
    const count = make(limit, seconds);
    let state = limit;
    const random = (below) => {
      state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
      return Math.floor((state / 2 ** 32) * below);
    };
    const requests = [];
    for (let step = 0, left = 0; step < STEPS; step++) {
      const [requestsInWindow, untilEnd] = await count();
      requests.push([Date.now(), requestsInWindow, untilEnd]);
      left = untilEnd;
      mock.timers.tick(random(10) === 0 ? left - random(2) : random((seconds * 1_000) / limit));
    }
    mock.timers.reset();
    recorded.push(JSON.stringify({ library: `${library} ${versionOf(library)}`, limit, period_s: seconds, requests }));
  }
}
console.log(`[\n${recorded.join(",\n")}\n]`);

/** The version of an installed package, whose `exports` may not have its package.json. */
function versionOf(name) {
  const [file] = require.resolve(name).match(new RegExp(`^.*/node_modules/${name}/`));
  return JSON.parse(readFileSync(`${file}package.json`, "utf8")).version;
}
