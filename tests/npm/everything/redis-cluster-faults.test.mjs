// The limiter on a Redis Cluster whose slots move, and whose masters change: what is granted is counted.
import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";

import { load } from "../installed.mjs";
import { clusterClients, startCluster } from "../redis-cluster.mjs";
import { until } from "../waiting.mjs";

const { RedisLimiter } = await load("tidegate/redis");

const KEYS = Array.from({ length: 24 }, (_, place) => `user-${place}`);

const sum = (numbers) => numbers.reduce((sum, number) => sum + number, 0);
const turn = () => new Promise(setImmediate);

/** More than is granted in a test. */
const ENOUGH = 10_000_000;
const enough = [{ algorithm: "fixed_window", limit: ENOUGH, period: "36500d" }];

/** Asks each limiter for each key until `end` is called. Counts what was granted, and keeps the reasons of `on_error`. */
function underLoad(limiters) {
  const granted = KEYS.map(() => 0);
  const degraded = [];
  const state = { isOver: false, isPaused: false, asking: 0 };
  const ask = async (limiter, key) => {
    while (!state.isOver) {
      while (state.isPaused) await turn();
      state.asking++;
      const answer = await limiter.check(KEYS[key]);
      state.asking--;
      if (answer.degraded === undefined) granted[key] += answer.allowed;
      else {
        degraded.push(answer.degraded);
        await turn(); // so that the client can reconnect
      }
    }
  };
  const asks = Promise.all(limiters.flatMap((limiter) => KEYS.map((_, key) => ask(limiter, key))));
  const more = async (units) => {
    const all = sum(granted) + units;
    await until(() => sum(granted) >= all);
  };
  /** Ends the load, and returns for each key how much more is charged than was granted. */
  const end = async () => {
    state.isOver = true;
    await asks;
    return Promise.all(KEYS.map(async (key, place) => ENOUGH - (await limiters[place % 2].peek(key)).remaining - granted[place]));
  };
  return { degraded, more, end, state };
}

/** Moves a slot from one of three masters to the next one, and waits for some grants in each state of the move. */
async function move(nodes, name, more) {
  const slot = await nodes[0].admin.call("CLUSTER", "KEYSLOT", name);
  const from = [5_461, 10_923, 16_384].findIndex((end) => slot < end);
  const [source, target, other] = [0, 1, 2].map((step) => nodes[(from + step) % 3]);
  await target.admin.call("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id);
  await source.admin.call("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id);
  await more(50);
  const names = await source.admin.call("CLUSTER", "GETKEYSINSLOT", slot, 10);
  for (const name of names) await source.admin.call("MIGRATE", "127.0.0.1", target.port, name, 0, 5_000);
  await more(50);
  for (const { admin } of [target, source, other]) await admin.call("CLUSTER", "SETSLOT", slot, "NODE", target.id);
  await more(50);
}

/** Makes a master of a replica, whose master lives. */
async function failOver({ admin }) {
  let asked = -Infinity;
  await until(async () => {
    if (performance.now() - asked > 6_000) { // Redis gives up after 5 s
      // refused while the replica connects to its master again
      await admin.call("CLUSTER", "FAILOVER").then(() => { asked = performance.now(); }, () => {});
    }
    return isMaster({ admin });
  });
}

const isMaster = async ({ admin }) => (await admin.info("replication")).includes("role:master");

for (const name of ["ioredis", "redis"]) {
  /** Two limiters on a Cluster under load. */
  const begun = async (t, { deadline, ...options }) => {
    const { nodes, stop } = await startCluster(options);
    const clients = [];
    t.after(async () => {
      for (const { end } of clients) end();
      await stop();
    });
    for (let count = 0; count < 2; count++) clients.push(await clusterClients(nodes)[name]());
    const limiters = clients.map(({ client }) => new RedisLimiter({ limits: enough }, client, { deadline }));
    t.after(() => Promise.all(limiters.map((limiter) => limiter.close())));
    return { nodes, limiters, ...underLoad(limiters) };
  };

  test(`${name}: slots that move under load cost nothing`, async (t) => {
    const { nodes, degraded, more, end } = await begun(t, { deadline: "10s" });
    await more(100);
    for (const key of KEYS.slice(0, 10)) await move(nodes, `tidegate:{policy:${key}}`, more);
    assert.deepEqual(await end(), KEYS.map(() => 0));
    assert.deepEqual(degraded, []);
    const info = await Promise.all(nodes.map(({ admin }) => admin.info("errorstats")));
    for (const error of ["MOVED", "ASK"]) assert.match(info.join(), new RegExp(`errorstat_${error}:`));
  });

  test(`${name}: masters that change under load, and one that dies, grant nothing twice`, async (t) => {
    const { nodes, limiters, degraded, more, end, state } = await begun(t, { deadline: "500ms", hasReplicas: true });
    await more(100);
    for (const replica of nodes.slice(3, 5)) {
      await failOver(replica);
      await more(100);
    }
    state.isPaused = true;
    await until(() => state.asking === 0);
    const [dying, replica, before] = [nodes[2], nodes[5], degraded.length];
    // what a replica has not received can be granted twice
    const received = async ({ admin }, name) => new RegExp(`${name}:(\\d+)`).exec(await admin.info("replication"))?.[1];
    await until(async () => await received(dying, "master_repl_offset") === await received(replica, "slave_repl_offset"));
    dying.server.kill("SIGKILL");
    await once(dying.server, "exit");
    state.isPaused = false;
    await until(() => isMaster(replica));
    await until(() => degraded.length > before); // a failover takes longer than the deadline
    for (const limiter of limiters) { // each client finds the new master by itself
      await until(async () => (await Promise.all(KEYS.map((key) => limiter.peek(key)))).every(({ degraded }) => degraded === undefined));
    }
    await more(1_000);
    const lost = await end();
    assert.ok(lost.every((units) => units >= 0) && sum(lost) <= degraded.length, `${lost} units are lost, ${degraded.length} requests failed`);
  });
}
