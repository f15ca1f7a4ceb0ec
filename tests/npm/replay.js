// Replays the vectors that every backend replays. Runs in any runtime: each field of each step's answer is compared.

/** Replays one vector by `decide` and by `check`. Returns the number of steps; throws at the first wrong answer. */
export function replay(Limiter, name, { policy, steps }) {
  const policies = { [name]: policy };
  const [limiter, checked] = [new Limiter({ policies }), new Limiter({ policies })];
  for (const [place, step] of steps.entries()) {
    const where = `${name}, step ${place}`;
    same(answer(limiter, step), step.answer, where);
    checkAlike(checked, step, where);
  }
  return steps.length;
}

/** Replays one vector by a limiter whose answers are promises. Returns the number of steps; rejects at the first wrong answer. */
export async function replayByPromises(limiter, name, { steps }) {
  for (const [place, { at_us, key, operation, answer: wanted }] of steps.entries()) {
    const found = await ask(limiter, key, operation, at_us).then(onWire, refusal);
    same(found, wanted, `${name}, step ${place}`);
  }
  return steps.length;
}

/** The answer to a step, in the names and units of the wire. */
function answer(limiter, { at_us, key, operation }) {
  try {
    return onWire(ask(limiter, key, operation, at_us));
  } catch (error) {
    return refusal(error);
  }
}

function refusal(error) {
  if (error.code === undefined) throw error;
  // here a wrong number has a code of its own; on the wire it is an invalid request
  const code = error.code === "INVALID_COST" ? "INVALID_REQUEST" : error.code;
  return { error: `urn:tidegate:${code.toLowerCase().replaceAll("_", "-")}` };
}

/** The API takes a number of microseconds, too. */
const span = (given) => (typeof given === "number" ? `${given}us` : given);

function ask(limiter, key, operation, now) {
  const [[call, given], ...others] = Object.entries(operation);
  same(others, [], "operations beside the first");
  const { lease, ...fields } = camel(given);
  switch (call) {
    case "check": return limiter.decide(key, { ...camel(given), now });
    case "peek": return limiter.peek(key, { ...camel(given), now });
    case "reserve": return limiter.reserve(key, { ...fields, timeToLive: span(fields.timeToLive), now });
    case "commit": return limiter.commit(key, fields.id, fields.actual, { now });
    case "refund": return limiter.refund(key, given.units, { now });
    case "reset": return limiter.reset(key, { now });
    case "block": return limiter.block(key, span(given.for), { now });
    case "renew": return limiter.renew(key, lease, { ...fields, now });
    case "release": return limiter.release(key, lease, { now });
    case "budget": return limiter.budget(key, lease, { ...fields, now });
    case "report": return limiter.report(key, { ...fields, now });
  }
  throw new Error(`expected an operation of the package, found ${call}`);
}

/** Checks that `check` answers the same as `decide` if the request has only a cost. */
function checkAlike(limiter, { at_us, key, operation, answer: wanted }, where) {
  const { cost, ...others } = operation.check ?? { draw: "none" };
  if (Object.keys(others).length > 0 || wanted.error !== undefined || wanted.lease !== undefined) {
    answer(limiter, { at_us, key, operation });
    return;
  }
  const { at_us: _, limits, factor, would_factor, paid_by, ...expected } = wanted; // not in the answer of check
  same(snake(limiter.check(key, { cost, now: at_us })), expected, `${where}, by check`);
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

/** Compares by JSON with sorted names. */
function same(found, expected, where) {
  const [one, other] = [found, expected].map((value) => JSON.stringify(sorted(value)));
  if (one !== other) throw new Error(`${where}: expected ${other}, found ${one}`);
}

function sorted(value) {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(sorted);
  return Object.fromEntries(Object.keys(value).sort().map((name) => [name, sorted(value[name])]));
}
