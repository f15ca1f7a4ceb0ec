// The vectors that every backend replays: each field of each step's answer is compared.
import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { load } from "./installed.mjs";

const { Limiter } = await load();

const folder = fileURLToPath(new URL("../vectors/", import.meta.url));
assert.ok(existsSync(folder), `${folder} is missing`);
const files = readdirSync(folder).filter((name) => name.endsWith(".json")).sort();

test("there are vectors", () => assert.ok(files.length > 0));

for (const file of files) {
  const { about, policy, steps } = JSON.parse(readFileSync(folder + file, "utf8"));
  const policies = { [file.replace(".json", "")]: policy }; // the policy has the name of the file

  test(`${file}: ${about}`, () => {
    assert.ok(steps.length > 0);
    const [limiter, checked] = [new Limiter({ policies }), new Limiter({ policies })];
    for (const [place, step] of steps.entries()) {
      const where = `${file}, step ${place}`;
      assert.deepEqual(replay(limiter, step), step.answer, where);
      checkAlike(checked, step, where);
    }
  });
}

/** The answer to a step, in the names and units of the wire. */
function replay(limiter, { at_us, key, operation }) {
  try {
    return onWire(ask(limiter, key, operation, at_us));
  } catch (error) {
    if (error.code === undefined) throw error;
    // here a wrong number has a code of its own; on the wire it is an invalid request
    const code = error.code === "INVALID_COST" ? "INVALID_REQUEST" : error.code;
    return { error: `urn:tidegate:${code.toLowerCase().replaceAll("_", "-")}` };
  }
}

function ask(limiter, key, operation, now) {
  const [[call, given], ...others] = Object.entries(operation);
  assert.equal(others.length, 0);
  const { lease, ...fields } = camel(given);
  switch (call) {
    case "check": return limiter.decide(key, { ...camel(given), now });
    case "peek": return limiter.peek(key, { ...camel(given), now });
    case "refund": return limiter.refund(key, given.units, { now });
    case "reset": return limiter.reset(key, { now });
    case "block": return limiter.block(key, given.for_us, { now });
    case "settle": return limiter.settle(key, { ...fields, now });
    case "renew": return limiter.renew(key, lease, { ...fields, now });
    case "release": return limiter.release(key, lease, { now });
    case "budget": return limiter.budget(key, lease, { ...fields, now });
    case "report": return limiter.report(key, { ...fields, now });
  }
  assert.fail(`there is no operation ${call}`);
}

/** Checks that `check` answers the same as `decide` if the request has only a cost. */
function checkAlike(limiter, { at_us, key, operation, answer }, where) {
  const { cost, ...others } = operation.check ?? { draw: "none" };
  if (Object.keys(others).length > 0 || answer.error !== undefined || answer.lease !== undefined) {
    replay(limiter, { at_us, key, operation });
    return;
  }
  const { at_us: _, limits, factor, would_factor, ...expected } = answer; // not in the answer of check
  assert.deepEqual(snake(limiter.check(key, { cost, now: at_us })), expected, `${where}, by check`);
}

function onWire({ limits, factor, wouldFactor, budget, ...answer }) {
  const wire = { ...snake(answer), limits: limits.map(snake) };
  if (factor !== undefined) wire.factor = factor * 2 ** 32;
  if (wouldFactor !== undefined) wire.would_factor = wouldFactor * 2 ** 32;
  if (budget !== undefined) wire.budget = snake(budget);
  return wire;
}

const renamed = (object, rename) => (
  Object.fromEntries(Object.entries(object).map(([name, value]) => [rename(name), value]))
);
const snake = (object) => renamed(object, (name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`));
const camel = (object) => renamed(object, (name) => name.replace(/_(.)/g, (_, letter) => letter.toUpperCase()));
