// What the tests of our classes for @upstash/ratelimit share, in memory and on Redis: random calls, and how sliding windows are compared.
import assert from "node:assert/strict";
import { test } from "node:test";

import { moveClock, outcome, pick, randomFrom } from "./dropin.mjs";

/** Random calls on these identifiers. A rate of `undefined` is left out. */
export const callsOn = (ids) => (rates) => (random) => {
  const id = pick(random, ids);
  if (random(60) === 0) return { name: "resetUsedTokens", args: [id] };
  if (random(5) === 0) return { name: "getRemaining", args: [id] };
  const rate = pick(random, rates);
  return { name: "limit", args: rate === undefined ? [id] : [id, { rate }] };
};

/** Random calls, of which some set or read the dynamic limit. */
export const withDynamicLimits = (limits, requests) => (random) => {
  if (random(20) === 0) return { name: "setDynamicLimit", args: [{ limit: pick(random, limits) }] };
  return random(30) === 0 ? { name: "getDynamicLimit", args: [] } : requests(random);
};

export const stepper = (move, windowMs) => (random) => move(Math.floor(pick(random, [0, 0, 1, windowMs / 50, windowMs / 9, windowMs / 2])));

/** Makes the same random calls of sliding windows of both. `client` reads what theirs has stored. */
export function testSlidingWindows({ seed: first, count, pair, calls, client, skips = () => false }) {
  for (const [place, [tokens, window, options]] of [
    [10, "30 s", {}], [20, "1 m", { ephemeralCache: false }], [1_000, "1d", { ephemeralCache: false }],
  ].entries()) {
    test(`${tokens} in ${window}, ${JSON.stringify(options)}`, async (t) => {
      const windowMs = { "30 s": 30_000, "1 m": 60_000, "1d": 86_400_000 }[window];
      const rates = tokens === 1_000 ? [100, 37, 1] : [undefined, undefined, 1, 2, 4, 0];
      const move = moveClock(t, ["Date"]);
      const [theirs, own] = pair((type) => type.slidingWindow(tokens, window), options);
      const [seed, call, step] = [first + place, calls(rates), stepper(move, windowMs)];
      const random = randomFrom(seed);
      let differences = 0;
      for (let made = 0; made < count; made++) {
        step(random);
        const { name, args } = call(random);
        if (await skips(theirs, { name, args })) continue;
        const [one, other] = [await outcome(theirs[name](...args)), await outcome(own[name](...args))];
        if (JSON.stringify(one) === JSON.stringify(other)) continue;
        // the only difference: in floating point 10 requests weigh 0.9999999999999998 at 90 % of the next window
        const key = `${theirs.prefix}:${args[0]}`;
        const past = Date.now() % windowMs;
        const before = Number(await client.get(`${key}:${Math.floor(Date.now() / windowMs) - 1}`));
        const exact = Number((BigInt(before) * BigInt(windowMs - past)) / BigInt(windowMs));
        assert.notEqual(Math.floor((1 - past / windowMs) * before), exact, `seed ${seed}, call ${made}: ${JSON.stringify([name, args, one, other])}`);
        for (const limiter of [theirs, own]) await limiter.resetUsedTokens(args[0]);
        differences++;
      }
      assert.ok(differences < 40, `${differences}`);
      t.diagnostic(`seed ${seed}: ${differences} differences by floating point`);
    });
  }
}
