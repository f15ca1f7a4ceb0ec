// The limiter on a Redis Cluster, by both clients, beside a native host; and behind a sentinel.
import assert from "node:assert/strict";
import { after, test } from "node:test";

import { Cluster, Redis } from "ioredis";
import { createCluster, createSentinel } from "redis";

import { startHost } from "./host.mjs";
import { install, load } from "./installed.mjs";
import { startCluster, startSentinel } from "./redis-cluster.mjs";
import { until } from "./redis.mjs";

const folder = install();
const { RedisLimiter } = await load(folder, "tidegate/redis");
const { toml } = await load(folder, "tidegate/toml");
const { nodes, stop } = await startCluster();
after(stop);

const CLIENTS = {
  async ioredis() {
    const client = new Cluster(nodes.map(({ port }) => ({ host: "127.0.0.1", port }))).on("error", () => {});
    await client.ping();
    return { client, end: () => client.disconnect() };
  },
  async redis() {
    const client = createCluster({ rootNodes: nodes.map(({ port }) => ({ socket: { host: "127.0.0.1", port } })) }).on("error", () => {});
    await client.connect();
    return { client, end: () => client.destroy() };
  },
};

const limits = [{ algorithm: "token_bucket", name: "own", capacity: 5, rate: "1/h" }, { algorithm: "token_bucket", name: "all", capacity: 1_000, rate: "1/h", depth: 1 }];

/** How many calls of the script each master has had. */
const calls = () => Promise.all(nodes.map(async ({ admin }) => Number(/cmdstat_evalsha:calls=(\d+)/.exec(await admin.info("commandstats"))?.[1] ?? 0)));

for (const [name, connected] of Object.entries(CLIENTS)) {
  test(`${name}: keys of all masters are limited, and calls that begin together do not meet in one command`, async () => {
    const { client, end } = await connected();
    const limiter = new RedisLimiter({ limits }, client, { prefix: `${name}:`, deadline: "5s" });
    const before = await calls();
    const keys = Array.from({ length: 300 }, (_, place) => `org-${place % 100}/user-${place}`);
    for (let round = 0; round < 6; round++) {
      const answers = await Promise.all(keys.map((key) => limiter.check(key)));
      assert.deepEqual(answers.filter(({ degraded }) => degraded), []);
      assert.ok(answers.every(({ allowed }) => allowed === round < 5), `round ${round}`);
    }
    const after = await calls();
    assert.ok(after.every((count, place) => count > before[place] + 50), `${before} ${after}`);
    await limiter.close();
    end();
  });
}

test("both clients and a native host share one limit", async (t) => {
  const file = `[policies.shared]\nlimits = [{ algorithm = "token_bucket", capacity = 600, rate = "1/h" }]\n`;
  const url = `redis+cluster://${nodes.map(({ port }) => `127.0.0.1:${port}`).join()}`;
  const host = await startHost(file, { options: ["--redis", url, "--redis-deadline", "5000"] });
  const clients = [await CLIENTS.ioredis(), await CLIENTS.redis()];
  t.after(async () => {
    for (const { end } of clients) end();
    await host.stop();
  });
  const limiters = clients.map(({ client }) => new RedisLimiter(toml(file), client, { deadline: "5s" }));
  const headers = { authorization: "Bearer secret", "content-type": "application/json" };
  const body = JSON.stringify({ policy: "shared", key: "user:42" });
  const asks = [
    ...limiters.map((limiter) => () => limiter.check("user:42")),
    async () => (await fetch(`${host.url}/v1/check`, { method: "POST", headers, body })).json(),
  ];
  const answers = await Promise.all(asks.flatMap((ask) => Array.from({ length: 250 }, ask)));
  assert.deepEqual(answers.filter(({ degraded }) => degraded), []);
  assert.equal(answers.filter(({ allowed }) => allowed).length, 600);
});

test("a master that stands still costs errors on its own keys alone", async () => {
  for (const [name, connected] of Object.entries(CLIENTS)) {
    const { client, end } = await connected();
    const limiter = new RedisLimiter({ limits: limits.slice(0, 1) }, client, { prefix: `still-${name}:`, deadline: "300ms" });
    const keys = Array.from({ length: 90 }, (_, place) => `user-${place}`);
    await Promise.all(keys.map((key) => limiter.check(key)));
    nodes[1].server.kill("SIGSTOP");
    const failed = [];
    for (let round = 0; round < 3; round++) {
      const answers = await Promise.all(keys.map((key) => limiter.check(key)));
      failed.push(answers.flatMap(({ degraded }, place) => (degraded === undefined ? [] : [keys[place]])).join());
    }
    nodes[1].server.kill("SIGCONT");
    const count = failed[0].split(",").length;
    assert.ok(count > 10 && count < 60, `${name}: ${count} of 90 keys`);
    assert.deepEqual(failed, [failed[0], failed[0], failed[0]]);
    const [key] = failed[0].split(",");
    await until(async () => (await limiter.peek(key)).degraded === undefined);
    await limiter.close();
    end();
  }
});

test("a share of the limits in an outage needs one Redis", async () => {
  for (const connected of Object.values(CLIENTS)) {
    const { client, end } = await connected();
    assert.throws(() => new RedisLimiter({ limits, on_error: "local" }, client), { code: "INVALID_OPTION", message: /^`client`: expected a client of one Redis by/ });
    end();
  }
});

test("behind a sentinel", async (t) => {
  const { sentinel, stop } = await startSentinel();
  const node = createSentinel({ name: "own", sentinelRootNodes: [{ host: "127.0.0.1", port: sentinel }] }).on("error", () => {});
  await node.connect();
  const io = new Redis({ name: "own", sentinels: [{ host: "127.0.0.1", port: sentinel }] });
  t.after(async () => {
    node.destroy();
    io.disconnect();
    await stop();
  });
  const [one, other] = [node, io].map((client) => new RedisLimiter({ limits: limits.slice(0, 1) }, client, { deadline: "5s" }));
  const answers = [];
  for (const limiter of [one, other, one, other, one, other]) answers.push((await limiter.check("a")).remaining);
  assert.deepEqual(answers, [4, 3, 2, 1, 0, 0]);
  await Promise.all([one.close(), other.close()]);
});
