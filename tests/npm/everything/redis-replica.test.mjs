// A Redis dies, and its replica is promoted. What is granted is counted: at most the limit, and what the replica had not received.
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, createServer } from "node:net";
import { test } from "node:test";

import { Redis } from "ioredis";
import { createClient } from "redis";

import { load } from "../installed.mjs";
import { startReplicated } from "../redis-cluster.mjs";
import { until } from "../waiting.mjs";

const { RedisLimiter } = await load("tidegate/redis");

/** Passes connections on to a port, until `leadTo` closes them and names another one, or none. */
async function startProxy(port) {
  const sockets = new Set();
  const server = createServer((socket) => {
    socket.on("error", () => {});
    if (port === undefined) return socket.destroy();
    const target = connect(port, "127.0.0.1").on("error", () => {});
    for (const [one, other] of [[socket, target], [target, socket]]) {
      sockets.add(one);
      one.pipe(other);
      one.on("close", () => (sockets.delete(one), other.destroy()));
    }
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const leadTo = (next) => {
    port = next;
    for (const socket of sockets) socket.destroy();
  };
  const stop = () => (leadTo(undefined), server.close());
  return { port: server.address().port, leadTo, stop };
}

/** Both clients at a port, and how they end. */
const CLIENTS = {
  ioredis: async (port) => {
    const client = new Redis({ port, retryStrategy: () => 20 }).on("error", () => {});
    return { client, end: () => client.disconnect() };
  },
  redis: async (port) => {
    const client = createClient({ socket: { port, reconnectStrategy: () => 20 } }).on("error", () => {});
    await client.connect();
    return { client, end: () => client.destroy() };
  },
};

const LIMIT = 5_000;
const policy = { limits: [{ algorithm: "fixed_window", limit: LIMIT, period: "36500d" }] };

/** Asks both limiters without a pause until `end` is called. */
function underLoad(limiters) {
  const state = { granted: 0, failed: 0, refused: 0, isOver: false };
  const asks = Promise.all(limiters.flatMap((limiter) => Array.from({ length: 4 }, async () => {
    while (!state.isOver) {
      const { allowed, degraded } = await limiter.check("k");
      state[degraded !== undefined ? "failed" : allowed ? "granted" : "refused"]++;
      if (!allowed) await new Promise(setImmediate); // so that the client can reconnect
    }
  })));
  const end = () => (state.isOver = true, asks);
  return { state, end };
}

for (const [name, connected] of Object.entries(CLIENTS)) {
  test(`${name}: a master dies under load, and its replica is promoted`, async (t) => {
    const { master, replica, stop } = await startReplicated();
    const toMaster = await startProxy(master.port);
    const clients = [await connected(toMaster.port), await connected(toMaster.port), await connected(replica.port)];
    const limiters = clients.map(({ client }) => new RedisLimiter(policy, client, { deadline: "1s" }));
    const { state, end } = underLoad(limiters.slice(0, 2));
    t.after(async () => {
      await end(); // also if the test fails, and nothing else ends the process
      for (const client of clients) client.end();
      toMaster.stop();
      await stop();
    });
    await until(() => state.granted > 500);
    master.server.kill("SIGKILL");
    await once(master.server, "exit");
    await until(() => state.failed >= 50); // nothing is granted any more
    const before = state.granted;
    await replica.admin.replicaof("NO", "ONE");
    const received = LIMIT - (await limiters[2].peek("k")).remaining;
    const missing = Math.max(0, before - received);
    toMaster.leadTo(replica.port);
    await until(() => state.refused >= 50);
    await end();
    t.diagnostic(`granted ${state.granted} of ${LIMIT}; the replica had received ${received} of ${before}`);
    assert.ok(state.granted <= LIMIT + missing, `${state.granted}, and the replica had not received ${missing}`);
    const lost = LIMIT + missing - state.granted;
    assert.ok(lost <= 8, `only units whose answers were under way are lost: ${lost}`);
  });

  test(`${name}: a replica that was cut off before the last 25 grants is promoted: they are granted once more, and no others`, async (t) => {
    const { master, replica, stop } = await startReplicated();
    const [toMaster, fromMaster] = [await startProxy(master.port), await startProxy(master.port)];
    const clients = [await connected(toMaster.port), await connected(toMaster.port)];
    const limiters = clients.map(({ client }) => new RedisLimiter({ limits: [{ ...policy.limits[0], limit: 100 }] }, client, { deadline: "10s" }));
    t.after(async () => {
      for (const { end } of clients) end();
      for (const proxy of [toMaster, fromMaster]) proxy.stop();
      await stop();
    });
    await replica.follow(fromMaster.port);
    let granted = 0;
    const ask = async (place) => granted += Number((await limiters[place % 2].check("k")).allowed);
    for (let place = 0; place < 50; place++) await ask(place);
    await until(() => replica.hasAll());
    fromMaster.leadTo(undefined);
    for (let place = 0; place < 25; place++) await ask(place);
    assert.equal(granted, 75);
    master.server.kill("SIGKILL");
    await once(master.server, "exit");
    await replica.admin.replicaof("NO", "ONE");
    toMaster.leadTo(replica.port);
    for (const limiter of limiters) await until(async () => (await limiter.peek("k")).degraded === undefined);
    for (let place = 0; place < 100; place++) await ask(place);
    assert.equal(granted, 100 + 25);
  });
}
