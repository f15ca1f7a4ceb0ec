// What the tests of limiters that wait for answers share, on Redis and at a server.
import assert from "node:assert/strict";

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
