// The limiter on a Redis Cluster whose slots move, whose masters change, and which stands still as a whole: what is granted is counted.
import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";

import { startHost } from "./host.mjs";
import { install, load } from "./installed.mjs";
import { clusterClients, startCluster } from "./redis-cluster.mjs";
import { until } from "./redis.mjs";

const folder = install();
const { RedisLimiter } = await load(folder, "tidegate/redis");
const { toml } = await load(folder, "tidegate/toml");

const LIMIT = 1_000;
const limits = [{ algorithm: "fixed_window", limit: LIMIT, period: "365d" }];
const KEYS = Array.from({ length: 24 }, (_, place) => `user-${place}`);

const sum = (numbers) => numbers.reduce((sum, number) => sum + number, 0);
const turn = () => new Promise(setImmediate);

/** Asks each limiter for each key until Redis refuses it. Counts what was granted of each key, and keeps the reasons of `on_error`. */
function underLoad(limiters) {
  const granted = new Map(KEYS.map((key) => [key, 0]));
  const degraded = [];
  const state = { isEnded: false, isPaused: false, asking: 0 };
  const ask = async (limiter, key) => {
    for (;;) {
      while (state.isPaused) await turn();
      state.asking++;
      const answer = await limiter.check(key);
      state.asking--;
      if (answer.degraded === undefined && !answer.allowed) return;
      if (answer.degraded === undefined) granted.set(key, granted.get(key) + 1);
      else degraded.push(answer.degraded);
      if (answer.degraded !== undefined) await turn(); // so that the client can reconnect
    }
  };
  const asks = limiters.flatMap((limiter) => KEYS.map((key) => ask(limiter, key)));
  const ended = Promise.all(asks).then(() => {
    state.isEnded = true;
  });
  const more = async (units) => {
    const all = sum([...granted.values()]) + units;
    await until(() => state.isEnded || sum([...granted.values()]) >= all);
  };
  return { granted, degraded, ended, more, state };
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

for (const name of ["ioredis", "redis"]) {
  test(`${name}: slots that move under load cost nothing`, async (t) => {
    const { nodes, stop } = await startCluster();
    const clients = [];
    t.after(async () => {
      for (const { end } of clients) end();
      await stop();
    });
    for (let count = 0; count < 2; count++) clients.push(await clusterClients(nodes)[name]());
    const limiters = clients.map(({ client }) => new RedisLimiter({ limits }, client, { deadline: "10s" }));
    const { granted, degraded, ended, more, state } = underLoad(limiters);
    await more(100);
    for (const key of KEYS.slice(0, 10)) await move(nodes, `tidegate:{policy:${key}}`, more);
    assert.equal(state.isEnded, false, "the slots moved under load");
    await ended;
    assert.deepEqual(degraded, []);
    assert.deepEqual([...granted.values()], KEYS.map(() => LIMIT));
    const info = await Promise.all(nodes.map(({ admin }) => admin.info("errorstats")));
    for (const error of ["MOVED", "ASK"]) assert.match(info.join(), new RegExp(`errorstat_${error}:`));
    await Promise.all(limiters.map((limiter) => limiter.close()));
  });

  test(`${name}: masters that change under load, and one that dies, grant nothing twice`, async (t) => {
    const { nodes, stop } = await startCluster({ hasReplicas: true });
    const clients = [];
    t.after(async () => {
      for (const { end } of clients) end();
      await stop();
    });
    for (let count = 0; count < 2; count++) clients.push(await clusterClients(nodes)[name]());
    const limiters = clients.map(({ client }) => new RedisLimiter({ limits }, client, { deadline: "1s" }));
    const { granted, degraded, ended, more, state } = underLoad(limiters);
    await more(100);
    for (const { admin } of nodes.slice(3, 5)) {
      let asked = -Infinity;
      await until(async () => {
        if (performance.now() - asked > 6_000) { // Redis gives up after 5 s
          asked = performance.now();
          await admin.call("CLUSTER", "FAILOVER");
        }
        return (await admin.info("replication")).includes("role:master");
      });
      await more(100);
    }
    state.isPaused = true;
    await until(() => state.asking === 0);
    const [dying, next] = [nodes[2], nodes[5]]; // which have not changed
    await dying.admin.wait(1, 5_000);
    dying.server.kill("SIGKILL");
    await once(dying.server, "exit");
    state.isPaused = false;
    await until(async () => (await next.admin.info("replication")).includes("role:master"));
    await ended;
    for (const [key, units] of granted) assert.ok(units <= LIMIT && units >= LIMIT - degraded.length, `${key}: ${units}`);
    assert.ok(degraded.length > 0 && degraded.length < LIMIT, `${degraded.length} requests met the master that died`);
    await Promise.all(limiters.map((limiter) => limiter.close()));
  });
}

/** Waits until the Cluster counts so many nodes, and each of them has read the count. */
async function announced(admin, nodes) {
  let times = {};
  const read = async () => {
    const found = await admin.zrange("tidegate:hosts", 0, -1, "WITHSCORES");
    return Object.fromEntries(Array.from({ length: found.length / 2 }, (_, place) => [found[2 * place], Number(found[2 * place + 1])]));
  };
  await until(async () => Object.keys(times = await read()).length === nodes);
  // a node that announces itself for the second time has read the count of the first time
  for (let time = 0; time < 2; time++) {
    const before = times;
    await until(async () => Object.entries(times = await read()).every(([node, at]) => at > before[node]));
  }
}

test("a Cluster that stops under load: two limiters and a host grant their shares, and tell the masters afterwards", async (t) => {
  const { nodes, stop } = await startCluster();
  const file = `[policies.shared]\nlimits = [{ algorithm = "fixed_window", limit = ${LIMIT}, period = "365d" }]\non_error = "local"\n`;
  const url = `redis+cluster://${nodes.map(({ port }) => `127.0.0.1:${port}`).join()}`;
  const host = await startHost(file, { options: ["--redis", url, "--redis-deadline", "2000"] });
  const connected = clusterClients(nodes);
  const clients = await Promise.all([connected.ioredis(), connected.redis(), connected.ioredis()]);
  t.after(async () => {
    for (const { end } of clients) end();
    await Promise.all([host.stop(), stop()]);
  });
  const limiters = clients.slice(0, 2).map(({ client }) => new RedisLimiter(toml(file), client, { deadline: "2s" }));
  const admin = clients[2].client;
  const headers = { authorization: "Bearer secret", "content-type": "application/json" };
  const checks = [
    ...limiters.map((limiter) => (key) => limiter.check(key)),
    async (key) => (await fetch(`${host.url}/v1/check`, { method: "POST", headers, body: JSON.stringify({ policy: "shared", key }) })).json(),
  ];
  for (const check of checks) for (const key of KEYS) assert.equal((await check(key)).allowed, true);
  await announced(admin, 3);

  /** Of each key and node: what was left when the Cluster last answered, and the share that was granted after it. */
  const shares = KEYS.map(() => checks.map(() => ({ left: LIMIT, granted: 0 })));
  const granted = KEYS.map(() => 3);
  const ask = async (check, key, node) => {
    const share = shares[key][node];
    for (;;) {
      const { allowed, degraded, remaining } = await check(KEYS[key]);
      if (allowed) granted[key]++;
      if (degraded === undefined) share.left = remaining;
      else if (allowed) share.granted++;
      if (!allowed) return;
    }
  };
  const asked = Promise.all(KEYS.map((_, key) => Promise.all(checks.map((check, node) => ask(check, key, node)))));
  await until(() => granted.every((units) => units > 30));
  for (const { server } of nodes) server.kill("SIGSTOP");
  await asked;
  for (const [key, units] of granted.entries()) {
    const [own, atMost] = [shares[key], ({ left }) => Math.floor(left / 3) + 1];
    for (const share of own) assert.ok(share.granted > 0 && share.granted <= atMost(share), `${KEYS[key]}: ${JSON.stringify(own)}`);
    // what the nodes had not seen of each other's grants, in the mean
    const unseen = sum(own.map(({ left }) => left)) / 3 - (LIMIT - (units - sum(own.map((share) => share.granted))));
    assert.ok(units <= LIMIT + 2 + unseen, `${KEYS[key]}: ${units}, and ${unseen} were not seen`);
  }
  const refused = await limiters[0].check(KEYS[0]);
  assert.match(refused.degraded, /^redis: no answer within 2000 ms; decided by a share of the limits$/);
  for (const { server } of nodes) server.kill("SIGCONT");
  for (const [key, units] of granted.entries()) {
    await until(async () => {
      const { degraded, remaining } = await limiters[key % 2].peek(KEYS[key]);
      return degraded === undefined && remaining <= Math.max(0, LIMIT - units);
    });
  }
  t.diagnostic(`granted of ${LIMIT}: ${granted.join()}`);
  await Promise.all(limiters.map((limiter) => limiter.close()));
});
