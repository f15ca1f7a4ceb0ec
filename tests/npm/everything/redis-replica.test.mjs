// A Redis dies, and its replica is promoted. What is granted is counted: the limit, and what the replica had not received.
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

const policy = { limits: [{ algorithm: "fixed_window", limit: 100, period: "36500d" }] };

for (const [name, connected] of Object.entries(CLIENTS)) {
  test(`${name}: a replica that was cut off before the last 25 grants is promoted: they are granted once more, and no others`, async (t) => {
    const { master, replica, stop } = await startReplicated();
    const [toMaster, fromMaster] = [await startProxy(master.port), await startProxy(master.port)];
    const clients = [await connected(toMaster.port), await connected(toMaster.port)];
    const limiters = clients.map(({ client }) => new RedisLimiter(policy, client, { deadline: "10s" }));
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
