// Helpers for the tests of the drop-in classes on Redis: a server, both clients, and a clock that moves for the libraries and for our classes.
import assert from "node:assert/strict";
import { after } from "node:test";
import { Redis } from "ioredis";
import { createClient } from "redis";

import { startServer } from "./redis.mjs";

/**
 * Lets the classes wait for Redis until the function that is returned is called. They give it 250 ms, which pass on a busy machine, and have
 * no option for that.
 */
export function waitForRedis() {
  const timer = globalThis.setTimeout;
  globalThis.setTimeout = (act, ms, ...rest) => timer(act, ms === 250 ? 30_000 : ms, ...rest);
  return () => {
    globalThis.setTimeout = timer;
  };
}

/** A server of its own, for which the classes wait, and the clients of `ioredis` and `redis`. They end after the tests. */
export async function startClients(path) {
  waitForRedis();
  const server = path === undefined ? await startServer() : { path, stop: () => {} };
  const io = new Redis({ path: server.path });
  const node = createClient({ socket: { path: server.path } }).on("error", () => {});
  await node.connect();
  after(async () => {
    io.disconnect();
    node.destroy();
    await server.stop();
  });
  return { server, io, node };
}

/**
 * A clock that goes on, and can be moved. Redis goes by its own clock, which no test can move, so the keys of the libraries get the
 * time to live that they would have left. Ours go by the clock of the process.
 */
export function movable(t, io, pattern) {
  const realNow = Date.now;
  let ahead = 0;
  t.mock.method(Date, "now", () => realNow() + ahead);
  return async (ms) => {
    ahead += ms;
    for (const key of await io.keys(pattern)) {
      const ends = await io.pexpiretime(key);
      if (ends > 0) await io.pexpireat(key, ends - ms); // one that is over is removed
    }
  };
}

/** The most milliseconds that two calls took. By so much a window of one may begin before that of the other. */
let slowestMs = 0;

/** Asks both, one after the other; `undefined` if they have not answered until a time. */
export async function both(ask, [theirs, own], until = Infinity) {
  const began = performance.now();
  const expected = await ask(theirs);
  const found = await ask(own);
  const tookMs = performance.now() - began;
  if (began + tookMs > until) return undefined;
  slowestMs = Math.max(slowestMs, tookMs);
  return { expected, found, slackMs: slowestMs + tookMs + 2 };
}

/** Compares two results whose times were read one after the other. */
export function assertAlike({ expected, found, slackMs }, times, message) {
  const [one, other] = [structuredClone(expected), structuredClone(found)];
  for (const [end, result] of Object.entries(one)) {
    for (const time of times) {
      const [their, our] = [result?.[time], other[end]?.[time]];
      if (typeof their !== "number" || typeof our !== "number") continue;
      assert.ok(Math.abs(their - our) <= slackMs, `${message}: ${time} ${their} and ${our}`);
      delete result[time];
      delete other[end][time];
    }
  }
  assert.deepEqual(other, one, message);
}

/**
 * Moves the clock past the ends of what began at slightly different times. `read` returns how many milliseconds each has left. Returns
 * until when nothing ends.
 */
export async function passEnds(move, read) {
  for (const nearMs = 40 + Math.ceil(slowestMs); ;) {
    const now = performance.now();
    if ((await read()).every((left) => !(left > 0 && left < nearMs))) return now + nearMs;
    await move(nearMs);
  }
}
