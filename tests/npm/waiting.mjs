// How tests wait. None has a deadline of its own: the runner ends a test that hangs, and names it.
import assert from "node:assert/strict";

const { setTimeout: realTimeout } = globalThis; // tests mock it

/** Waits until this is true. */
export async function until(isTrue) {
  while (!await isTrue()) await new Promise((resolve) => { realTimeout(resolve, 5); });
}

/** Asks again until the answer is one of the store, and none that `on_error` gave. */
export async function decided(ask) {
  let answer;
  await until(async () => (answer = await ask()).degraded === undefined);
  return answer;
}

/** Lets the event loop turn until this many requests wait. */
export async function waiting(limiter, wanted) {
  while (limiter.waiting !== wanted) await new Promise(setImmediate);
}

/** Lets the event loop turn until what has come was read. */
export async function settled() {
  for (let turn = 0; turn < 20; turn++) await new Promise(setImmediate);
}

/** Lets six requests wait for their turn at a bucket of one unit that gets 20 a second. */
export async function assertOneAfterAnother(limiter) {
  const order = [];
  const grants = await Promise.all(Array.from({ length: 6 }, async (_, place) => {
    const { atUs } = await limiter.waitFor("a", { jitter: 0 });
    order.push(place);
    return atUs;
  }));
  assert.deepEqual(order, [0, 1, 2, 3, 4, 5]);
  for (let place = 1; place < 6; place++) assert.ok(grants[place] - grants[place - 1] >= 50_000, grants.join());
  assert.equal(limiter.waiting, 0);
}
