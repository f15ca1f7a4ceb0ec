// What docs/compare.md says of rate-limiter-flexible and @upstash/ratelimit, and the same questions to Tidegate. Each test is a
// sentence of that page. The clock is moved; Upstash runs on a real redis-server.
import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { gzipSync } from "node:zlib";
import { Ratelimit } from "@upstash/ratelimit";
import esbuild from "esbuild";
import flexible from "rate-limiter-flexible";

import { moveClock, randomFrom } from "../dropin.mjs";
import { installed, load } from "../installed.mjs";
import { startRedis } from "../redis.mjs";

const { RateLimiterMemory, RateLimiterUnion } = flexible;
const { Limiter } = await load();
const { client, stop } = await startRedis();
after(stop);

const WINDOW_MS = 10_000;
const [FIXED, SLIDING, BUCKET] = [Ratelimit.fixedWindow(10, "10 s"), Ratelimit.slidingWindow(10, "10 s"), Ratelimit.tokenBucket(10, "10 s", 10)];
const limitsOf = (most) => ({
  "token bucket": { algorithm: "token_bucket", capacity: most, rate: `${3 * most}/10s` },
  "fixed window": { algorithm: "fixed_window", limit: most, period: "10s" },
  "sliding window": { algorithm: "sliding_window", limit: most, period: "10s", segments: 10 },
  "sliding log": { algorithm: "sliding_log", rates: [`${most}/10s`] },
});
const LIMITS = limitsOf(10);

let prefixes = 0;
// Its keys live for whole seconds, and Redis's answers about them are some milliseconds late.
const upstash = (limiter, options) => new Ratelimit({
  redis: client.expiring(1_000), limiter, prefix: `peers-${prefixes++}`, ephemeralCache: false, timeout: 0, enableTelemetry: false, ...options,
});
const SEGMENT = { ...LIMITS["sliding window"], segments: 1 };
const limiterOf = (...limits) => new Limiter({ limits });

/** Ways to ask for units of one key: true if they are granted. */
const asksFlexible = (limiter) => (cost = 1) => limiter.consume("a", cost).then(() => true, () => false);
const asksUpstash = (limiter) => async (rate = 1) => (await limiter.limit("a", { rate })).success;
const asksTidegate = (limiter) => async (cost = 1) => limiter.check("a", { cost }).allowed;

/** Asks that many times for one unit, and returns how many were granted. */
async function granted(ask, times) {
  let count = 0;
  for (let asked = 0; asked < times; asked++) count += await ask();
  return count;
}

/** Moves the clock to `ms` after the next border of the windows. */
const moveToBorder = (move, ms = 0) => move(WINDOW_MS - (Date.now() % WINDOW_MS) + ms);

describe("the wait that a refusal names", () => {
  const waits = { ...LIMITS, "token bucket of 300,000 a second": { algorithm: "token_bucket", capacity: 1_000, rate: "300000/s" } };
  for (const [name, limit] of Object.entries(waits)) {
    test(`Tidegate's ${name}: of 1,000 refusals each is refused a microsecond earlier and granted at retryAfterUs`, () => {
      const random = randomFrom(7);
      const limiter = limiterOf(limit);
      const [most, stepUs] = limit.capacity === 1_000 ? [900, 1_000] : [5, 1_200_000];
      for (let [now, refusals] = [1_700_000_000_000_000, 0]; refusals < 1_000;) {
        now += random(stepUs);
        const cost = 1 + random(most);
        const { allowed, retryAfterUs } = limiter.check("a", { cost, now });
        if (allowed) continue;
        refusals++;
        assert.equal(limiter.check("a", { cost, now: now + retryAfterUs - 1 }).allowed, false, `refusal ${refusals}, a microsecond earlier`);
        assert.equal(limiter.check("a", { cost, now: now += retryAfterUs }).allowed, true, `refusal ${refusals}`);
      }
    });
  }

  test("rate-limiter-flexible: of 4,000 refusals each is refused a millisecond earlier and granted at msBeforeNext", async (t) => {
    const move = moveClock(t);
    const random = randomFrom(7);
    const limiter = new RateLimiterMemory({ points: 5, duration: 2 });
    const ask = asksFlexible(limiter);
    for (let refusals = 0; refusals < 4_000;) {
      move(random(400));
      const refusal = await limiter.consume("a").then(() => undefined, (refused) => refused);
      if (refusal === undefined) continue;
      refusals++;
      move(refusal.msBeforeNext - 1);
      assert.equal(await ask(), false);
      move(1);
      assert.equal(await ask(), true);
    }
  });

  for (const [name, limiter, expected] of [
    ["fixedWindow", FIXED, { right: 300, late: 0, early: 0 }], ["tokenBucket", BUCKET, { right: 300, late: 0, early: 0 }],
    ["slidingWindow", SLIDING, { right: 0, late: 262, early: 38 }],
  ]) {
    test(`Upstash's ${name}: reset is right in ${expected.right} of 300 refusals, too late in ${expected.late}, too early in ${expected.early}`, async (t) => {
      const move = moveClock(t, ["Date"]);
      const random = randomFrom(7);
      const ratelimit = upstash(limiter);
      const counts = { right: 0, late: 0, early: 0 };
      for (let refusals = 0; refusals < 300;) {
        move(random(1_200));
        const { success, reset } = await ratelimit.limit("a");
        if (success) continue;
        refusals++;
        move(Math.max(0, reset - Date.now() - 1));
        const hasRoom = (await ratelimit.getRemaining("a")).remaining > 0; // and takes nothing
        move(reset - Date.now());
        const passes = (await ratelimit.limit("a")).success;
        counts[hasRoom ? "late" : passes ? "right" : "early"]++;
      }
      assert.deepEqual(counts, expected);
    });
  }
});

describe("10 an hour and 1 a second, ten requests at once, then one a second for a minute", () => {
  const union = () => asksFlexible(new RateLimiterUnion(
    new RateLimiterMemory({ keyPrefix: "hour", points: 10, duration: 3_600 }), new RateLimiterMemory({ keyPrefix: "second", points: 1, duration: 1 }),
  ));
  const policy = () => asksTidegate(limiterOf(
    { algorithm: "fixed_window", limit: 10, period: "1h", start: "first" }, { algorithm: "fixed_window", limit: 1, period: "1s" },
  ));
  for (const [name, make, later] of [["rate-limiter-flexible's union grants 1, and then none", union, 0], ["Tidegate grants 1, and then the other 9", policy, 9]]) {
    test(name, async (t) => {
      const move = moveClock(t);
      const ask = make();
      assert.equal(await granted(ask, 10), 1);
      assert.equal(await granted(() => (move(1_000), ask()), 60), later);
    });
  }
});

describe("8 of 10 are used, and a request of 5 is refused: a request of 1", () => {
  const lightPasses = async (ask) => {
    assert.deepEqual([await ask(8), await ask(5)], [true, false]);
    return ask(1);
  };

  test("is refused by rate-limiter-flexible, which has counted 14", async () => {
    const limiter = new RateLimiterMemory({ points: 10, duration: 60 });
    assert.equal(await lightPasses(asksFlexible(limiter)), false);
    assert.equal((await limiter.get("a")).consumedPoints, 14);
  });

  for (const [name, limiter, cached, passes] of [
    ["fixedWindow", FIXED, false, false], ["slidingWindow", SLIDING, false, false], ["tokenBucket", BUCKET, false, true],
    ["tokenBucket with its cache, which is on by default,", BUCKET, new Map(), false],
  ]) {
    test(`is ${passes ? "granted" : "refused"} by Upstash's ${name}`, async (t) => {
      moveClock(t, ["Date"]);
      assert.equal(await lightPasses(asksUpstash(upstash(limiter, { ephemeralCache: cached }))), passes);
    });
  }

  for (const [name, limit] of Object.entries(LIMITS)) {
    test(`is granted by Tidegate's ${name}`, async (t) => {
      moveClock(t);
      assert.equal(await lightPasses(asksTidegate(limiterOf(limit))), true);
    });
  }
});

describe("400 of 1,000 were taken, and 250 of them come back 30 s later, when the key is unused again: it grants", () => {
  test("1,250 of 1,000 in rate-limiter-flexible", async (t) => {
    const move = moveClock(t);
    const limiter = new RateLimiterMemory({ points: 1_000, duration: 10 });
    await limiter.consume("a", 400);
    move(30_000);
    await limiter.reward("a", 250);
    assert.equal(await granted(asksFlexible(limiter), 1_300), 1_250);
  });

  for (const name of ["fixedWindow", "slidingWindow", "tokenBucket"]) { // the first two ignore the third argument
    test(`1,250 of 1,000 in Upstash's ${name}`, async (t) => {
      const move = moveClock(t, ["Date"]);
      const ratelimit = upstash(Ratelimit[name](1_000, "10 s", 1_000));
      await ratelimit.limit("a", { rate: 400 });
      move(30_000);
      await ratelimit.limit("a", { rate: -250 });
      assert.equal(await granted(asksUpstash(ratelimit), 1_300), 1_250);
    });
  }

  for (const [name, limit] of Object.entries(limitsOf(1_000))) {
    test(`1,000 of 1,000 in Tidegate's ${name}`, async (t) => {
      const move = moveClock(t);
      const limiter = limiterOf(limit);
      const grant = limiter.decide("a", { cost: 400 });
      move(30_000);
      grant.refund(250);
      assert.equal(await granted(asksTidegate(limiter), 1_300), 1_000);
    });
  }
});

describe("a sliding window of 10 in 10 s is used up a millisecond before a window ends", () => {
  const usedUp = async (t, ask) => {
    const move = moveClock(t, ["Date"]);
    moveToBorder(move, -1);
    assert.equal(await granted(ask, 10), 10);
    move(1);
    return move;
  };
  for (const [name, count, make] of [
    ["Upstash's with its cache, which is on by default, grants 0", 0, () => asksUpstash(upstash(SLIDING, { ephemeralCache: new Map() }))],
    ["Upstash's without its cache grants 10", 10, () => asksUpstash(upstash(SLIDING))],
    ["Tidegate's grants 9: it rounds the estimate up, Upstash rounds it down", 9, () => asksTidegate(limiterOf(SEGMENT))],
  ]) {
    test(`and asked every 99 ms for 10 s: ${name}`, async (t) => {
      const ask = make();
      const move = await usedUp(t, ask);
      assert.equal(await granted(() => ask().finally(() => move(99)), 101), count);
    });
  }

  for (const [name, count, make] of [
    ["Upstash weighs 0.9999999999999998, counts it as 0, and grants 10", 10, () => asksUpstash(upstash(SLIDING))],
    ["Tidegate counts 1, and grants 9", 9, () => asksTidegate(limiterOf(SEGMENT))],
  ]) {
    test(`and the 10 weigh 1 after 90 % of the next window: ${name}`, async (t) => {
      const ask = make();
      const move = await usedUp(t, ask);
      move(9_000);
      assert.equal(await granted(ask, 20), count);
    });
  }
});

describe("a limit of 10 in 10 s is used up a millisecond before a window ends, and asked again", () => {
  const first = { ...LIMITS["fixed window"], start: "first" };
  for (const [name, opening, laterMs, total, make] of [
    ["rate-limiter-flexible grants 19", 1, 1, 19, () => asksFlexible(new RateLimiterMemory({ points: 10, duration: 10 }))],
    ["Upstash's fixedWindow grants 20", 0, 1, 20, () => asksUpstash(upstash(FIXED))],
    ["Upstash's slidingWindow grants 20", 0, 9_999, 20, () => asksUpstash(upstash(SLIDING))],
    ["Tidegate's fixed window that starts with a request grants 19", 1, 1, 19, () => asksTidegate(limiterOf(first))],
    ["Tidegate's aligned fixed window grants 20", 0, 1, 20, () => asksTidegate(limiterOf(LIMITS["fixed window"]))],
    ["Tidegate's sliding window grants 19", 0, 9_999, 19, () => asksTidegate(limiterOf(LIMITS["sliding window"]))],
    ["Tidegate's sliding log grants 10", 0, 9_999, 10, () => asksTidegate(limiterOf(LIMITS["sliding log"]))],
  ]) {
    test(`${name} within ${laterMs} ms`, async (t) => {
      const move = moveClock(t);
      moveToBorder(move);
      const ask = make();
      await granted(ask, opening); // begins a window that starts with a request
      move(WINDOW_MS - 1);
      const before = await granted(ask, 20);
      move(laterMs);
      assert.equal(before + await granted(ask, 20), total);
    });
  }
});

test("Upstash grants after its timeout of 5 s if Redis is silent, and rejects the promise if Redis cannot be reached", async (t) => {
  const move = moveClock(t);
  const ask = (answer) => upstash(FIXED, { redis: { eval: answer, evalsha: answer }, timeout: 5_000 }).limit("a");
  const silent = ask(() => new Promise(() => {}));
  move(5_000);
  const { success, reason } = await silent;
  assert.deepEqual({ success, reason }, { success: true, reason: "timeout" });
  await assert.rejects(ask(() => Promise.reject(new Error("no connection"))), /no connection/);
});

describe("the size of a bundle, minified and compressed by gzip", () => {
  const here = import.meta.dirname;
  for (const [name, code, from, [least, most], platform = "browser"] of [
    ["the class RateLimiterMemory alone", 'export { default } from "rate-limiter-flexible/lib/RateLimiterMemory.js"', here, [2_000, 3_000]],
    ["RateLimiterMemory out of rate-limiter-flexible", 'export { RateLimiterMemory } from "rate-limiter-flexible"', here, [16_000, 19_000], "node"],
    ["Upstash with its client", 'export * from "@upstash/ratelimit"; export { Redis } from "@upstash/redis"', here, [26_000, 31_000]],
    ["Tidegate", 'export { Limiter } from "tidegate"', installed, [235_000, 260_000]],
  ]) {
    test(`${name}: from ${least} to ${most} bytes`, async (t) => {
      const options = { bundle: true, minify: true, format: "esm", platform, external: ["drizzle-orm"], write: false, logLevel: "silent" };
      const { outputFiles: [{ contents }] } = await esbuild.build({ stdin: { contents: code, resolveDir: from }, ...options });
      const bytes = gzipSync(contents, { level: 9 }).length;
      t.diagnostic(`${contents.length} bytes, ${bytes} by gzip`);
      assert.ok(least < bytes && bytes < most, `${bytes}`);
    });
  }
});
