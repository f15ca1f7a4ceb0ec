// What the tests of the drop-in classes share: numbers from a seed, a clock that is moved.
import assert from "node:assert/strict";

import { load } from "./installed.mjs";

/** The exports of an entry. */
export const ours = (entry) => load(`tidegate/${entry}`);

/** A generator of whole numbers below a bound (mulberry32). */
export function randomFrom(seed) {
  let state = seed;
  return (bound) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % bound;
  };
}

export const START_MS = 1_700_000_000_123;

/** Moves the clock of a test. Timers run when it passes them. */
export function moveClock(t, apis = ["Date", "setTimeout"]) {
  t.mock.timers.enable({ apis, now: START_MS });
  return (ms) => t.mock.timers.tick(ms);
}

/** How a promise ends, as plain values that can be compared. */
export async function outcome(promise) {
  try {
    return { resolved: plain(await promise) };
  } catch (reason) {
    return { rejected: plain(reason) };
  }
}

function plain(value) {
  if (value instanceof Error) return { error: value.message };
  if (value instanceof Date) return value.getTime();
  if (value === 0) return 0; // rate-limiter-flexible also has −0
  if (typeof value !== "object" || value === null) return value;
  const fields = typeof value.toJSON === "function" ? value.toJSON() : value;
  return Object.fromEntries(Object.entries(fields).map(([name, field]) => [name, plain(field)]));
}

/** Makes the same random calls of both libraries, and compares each result. Returns how many calls of each name there were. */
export async function compare({ seed, calls, limiters: [theirs, own], step, call, skips = () => false }) {
  const random = randomFrom(seed);
  const counts = {};
  for (let place = 0; place < calls; place++) {
    step(random);
    const { name, args } = call(random);
    if (await skips({ name, args })) continue;
    counts[name] = (counts[name] ?? 0) + 1;
    const expected = await outcome(theirs[name](...args));
    const found = await outcome(own[name](...args));
    assert.deepEqual(found, expected, `seed ${seed}, call ${place}: ${name}(${JSON.stringify(args)})`);
  }
  return counts;
}

export const pick = (random, list) => list[random(list.length)];
