// A call that throws changes nothing, neither the states nor what the next call does. Two limiters get the same calls by chance,
// and one of them also gets calls that must fail.
import assert from "node:assert/strict";
import { test } from "node:test";

import { randomFrom } from "./dropin.mjs";
import { load } from "./installed.mjs";

const { Limiter } = await load();

const START = 1_700_000_000_000_000;
const bucket = { algorithm: "token_bucket", capacity: 8, rate: "4/s" };
const first = { algorithm: "fixed_window", limit: 20, period: "1m", start: "first" };
const log = { algorithm: "sliding_log", rates: ["6/s", "30/m"] };
const places = { algorithm: "concurrency", capacity: 3, time_to_live: "10s" };
const POLICIES = {
  "one limit": { limits: [bucket] },
  "several limits": { limits: [first, log, { ...bucket, name: "all", depth: 1 }] },
  leases: { limits: [places, bucket] },
  lists: { limits: [log], deny: ["a"], overrides: { b: { limits: [first] } } },
  shadow: { limits: [bucket, first], shadow: true },
};
const KEYS = ["a", "b", "org/c", "org/d"];
const OF_CALL = [[{ ...bucket, capacity: 5 }], [first, log]];

/** A call that may succeed, as its name and its arguments. */
function anyCall(random, now) {
  const pick = (all) => all[random(all.length)];
  const key = pick(KEYS);
  const options = { now, ...(random(4) === 0 && { limits: pick(OF_CALL) }) };
  const lease = pick(["x", "y", "z"]);
  return pick([
    ["check", key, { ...options, cost: random(10) }],
    ["decide", key, { ...options, cost: random(4), lease: random(2) === 0 ? lease : undefined }],
    ["peek", key, { ...options, cost: random(4) }],
    ["explain", key, { ...options, cost: 1 + random(4) }],
    ["acquire", key, { ...options, lease }],
    ["renew", key, lease, options],
    ["release", key, lease, options],
    ["refund", key, 1 + random(3), options],
    ["set", key, random(9), options],
    ["block", key, random(2_000_000), options],
    ["reset", key, options],
  ]);
}

/** A call that must fail, made of one that may succeed: one of its arguments is wrong. */
function wrongCall(random, now) {
  const pick = (all) => all[random(all.length)];
  const [name, key, ...rest] = anyCall(random, now);
  const options = rest.pop();
  if (random(2) === 0) return [name, pick(["\ud800", "", "x".repeat(513), "é".repeat(300), 5, undefined, "ip:nowhere"]), ...rest, options];
  const limits = pick([OF_CALL[0], [], [{ ...bucket, rate: "none" }], 5, [{ ...bucket, name: "\ud800" }]]);
  const wrong = pick([
    { now: -1 }, { now: NaN }, { now: 1.5 }, { now: 2 ** 53 }, { limits, now: "soon" }, { limits, colour: 1 }, { limits, cost: NaN },
    { limits, cost: 2 ** 53 }, { limits, class: 5 }, { limits, lease: "" }, { limits, lease: "y".repeat(900) }, { limits, lease: "\ud800" },
  ]);
  return [name, key, ...rest, { ...options, ...wrong }];
}

function outcome(limiter, [name, ...given]) {
  try {
    const { lease, ...answer } = limiter[name](...given);
    return { ...answer, lease: given.some((each) => each?.lease !== undefined) ? lease : undefined }; // other names are random
  } catch (error) {
    return { code: error.code, message: error.message };
  }
}

for (const [title, policy] of Object.entries(POLICIES)) {
  test(`a call that throws changes nothing: ${title}`, (t) => {
    let [failed, allowed] = [0, 0];
    for (let seed = 1; seed <= 20; seed++) {
      const random = randomFrom(seed);
      const [disturbed, quiet] = [new Limiter(policy), new Limiter(policy)];
      for (let place = 0, now = START; place < 300; place++) {
        for (let wrongs = random(3); wrongs > 0; wrongs--) {
          const call = wrongCall(random, now);
          const { code } = outcome(disturbed, call);
          if (code === undefined) outcome(quiet, call); // it was right after all
          else failed++;
        }
        now += random(3) === 0 ? -random(500_000) : random(1_000_000);
        const call = anyCall(random, now);
        const expected = outcome(quiet, call);
        assert.deepEqual(outcome(disturbed, call), expected, `seed ${seed}, call ${place}: ${JSON.stringify(call)}`);
        if (expected.allowed) allowed++;
      }
      assert.equal(disturbed.size, quiet.size, `seed ${seed}`); // `bytes` also depends on the random seed of the hash table
    }
    assert.ok(failed > 4_000 && allowed > 500, `${failed} calls failed, ${allowed} requests passed`);
    t.diagnostic(`${failed} calls failed, ${allowed} requests passed`);
  });
}
