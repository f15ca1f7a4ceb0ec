// What a limiter on Redis answers by itself, as a node beside others: refusals that it remembers, units that it holds, and its share of the
// limits in an outage. What all nodes have granted is counted. docs/modes.md states the bounds.
import assert from "node:assert/strict";
import { after, test } from "node:test";

import { Redis } from "ioredis";

import { startHost } from "../host.mjs";
import { load } from "../installed.mjs";
import { announced, startServer } from "../redis.mjs";
import { decided, until } from "../waiting.mjs";

const { RedisLimiter } = await load("tidegate/redis");
const { toml } = await load("tidegate/toml");
const redis = await startServer();
const client = new Redis({ path: redis.path });
after(async () => {
  client.disconnect();
  await redis.stop();
});

/** A client that counts its commands. */
function counted(client) {
  const own = { commands: 0, callBuffer: (...words) => (own.commands++, client.callBuffer(...words)) };
  return own;
}

/** The options of a limiter that waits for Redis, and whose names in it no other test uses. */
let count = 0;
const options = () => ({ prefix: `modes-${count++}:`, deadline: "10s" });

const window = { algorithm: "fixed_window", limit: 1, period: "1h", start: "first" };

test("a refusal that is known costs no command, until this limiter gives something back", async () => {
  const own = counted(client);
  const limiter = new RedisLimiter({ limits: [window], remember: "10m" }, own, options());
  assert.equal((await limiter.check("a")).allowed, true);
  const first = await limiter.check("a");
  const before = own.commands;
  for (let round = 0; round < 50; round++) {
    const { allowed, retryAfterUs, degraded } = await limiter.check("a");
    assert.deepEqual([allowed, degraded, retryAfterUs <= first.retryAfterUs], [false, undefined, true]);
    assert.equal((await limiter.peek("a", { cost: 1 })).allowed, false);
  }
  assert.equal(own.commands, before);
  await limiter.reset("a");
  assert.equal((await limiter.check("a")).allowed, true);
  const strict = counted(client);
  const asks = new RedisLimiter({ limits: [window] }, strict, options());
  for (let round = 0; round < 5; round++) await asks.check("a");
  assert.ok(strict.commands >= 5, "without `remember` each refusal asks");
  await Promise.all([limiter.close(), asks.close()]);
});

for (const loops of [1, 100]) {
  test(`${loops} loops of checks whose answers need no command let the rest of the program go on`, async () => {
    const limiter = new RedisLimiter({ limits: [window], remember: "10m" }, client, options());
    await limiter.check("a");
    await limiter.check("a");
    let [turnedAfter, checks] = [Infinity, 0];
    setImmediate(() => {
      turnedAfter = checks;
    });
    const loop = async () => {
      for (; turnedAfter === Infinity && checks < 10_000; checks++) await limiter.check("a");
    };
    await Promise.all(Array.from({ length: loops }, loop));
    assert.ok(turnedAfter < 2_000, `${turnedAfter} checks in one turn of the event loop`);
    await limiter.close();
  });
}

test("a limiter that closes gives the answers that wait for the event loop first", async () => {
  const limiter = new RedisLimiter({ limits: [window], remember: "10m" }, client, options());
  await limiter.check("a");
  await limiter.check("a");
  let answers = 0;
  for (let checks = 0; checks < 3_000; checks++) void limiter.check("a").then(() => answers++);
  await limiter.close();
  assert.equal(answers, 3_000);
});

test("what is given a time is always asked", async () => {
  const own = counted(client);
  const limiter = new RedisLimiter({ limits: [window], remember: "10m" }, own, options());
  const now = 1_700_000_000_000_000;
  for (let round = 0; round < 3; round++) await limiter.check("a", { now });
  const before = own.commands;
  assert.equal((await limiter.check("a", { now: now + 3_600_000_000 })).allowed, true);
  assert.ok(own.commands > before);
});

const LENT = { limits: [{ algorithm: "token_bucket", capacity: 2_000, rate: "1/30d" }], local: { most: 50, time: "1h" } };

test("units are lent: two limiters grant the capacity and no more, by few commands, and what is left goes back", async () => {
  const shared = options();
  const clients = [counted(client), counted(client)];
  const [one, other] = clients.map((client) => new RedisLimiter(LENT, client, shared));
  let granted = 0;
  for (let round = 0; round < 700; round++) {
    for (const limiter of [one, other]) granted += Number((await limiter.check("a")).allowed);
  }
  assert.equal(granted, 1_400);
  const commands = clients[0].commands + clients[1].commands;
  assert.ok(commands < 350, `${commands} commands`);
  await one.close();
  for (let refused = 0; refused < 20;) {
    const { allowed } = await other.check("a");
    granted += Number(allowed);
    refused += Number(!allowed);
  }
  assert.equal(granted, 2_000);
  await other.close();
});

const SHARED = { limits: [{ algorithm: "fixed_window", limit: 800, period: "36500d" }], on_error: "local" };

/** Asks until it is refused; returns how many requests passed. */
async function drained(check) {
  for (let granted = 0; ; granted++) if (!await check()) return granted;
}

test("in an outage the two limiters of a process are one node beside a native host, and tell Redis nothing afterwards", async (t) => {
  const own = await startServer();
  const clients = Array.from({ length: 2 }, () => new Redis({ path: own.path, retryStrategy: () => 20 }).on("error", () => {}));
  const admin = new Redis({ path: own.path });
  const file = `[policies.shared]\nlimits = [{ algorithm = "fixed_window", limit = 800, period = "36500d" }]\non_error = "local"\n`;
  const host = await startHost(file, { options: ["--redis", `redis+unix://${own.path}`, "--redis-deadline", "2000"] });
  const limiters = clients.map((client) => new RedisLimiter(toml(file), client, { deadline: "2s" }));
  t.after(async () => {
    for (const client of [...clients, admin]) client.disconnect();
    await Promise.all([host.stop(), own.stop()]);
  });
  const body = JSON.stringify({ policy: "shared", key: "k" });
  const headers = { authorization: "Bearer secret", "content-type": "application/json" };
  const asks = [
    ...limiters.map((limiter) => async () => (await limiter.check("k")).allowed),
    async () => (await (await fetch(`${host.url}/v1/check`, { method: "POST", headers, body })).json()).allowed,
  ];
  for (let round = 0; round < 30; round++) for (const ask of asks) await until(ask);
  await announced(admin, 2);
  own.server.kill("SIGSTOP");
  const shares = await Promise.all(asks.map(drained));
  for (const share of [shares[0] + shares[1], shares[2]]) assert.ok(share > 200 && share <= 400, `each has a share: ${shares}`);
  const refused = await limiters[0].check("k");
  assert.match(refused.degraded, /^redis: no answer within 2000 ms; decided by a share of the limits$/);
  own.server.kill("SIGCONT");
  const { remaining } = await decided(() => limiters[0].peek("k"));
  assert.ok(remaining >= 800 - 90 - 3 && remaining <= 800 - 90, `${remaining}: at most what was under way is charged`);
  await Promise.all(limiters.map((limiter) => limiter.close()));
});

/** Clients of a Redis that counts two nodes, and then does nothing more. */
const COUNTED = (() => {
  const answer = async (command, script) => {
    if (command === "EVAL" && String(script).includes("ZCARD")) return 2;
    throw new Error("Connection is closed.");
  };
  const callBuffer = (command, [script]) => answer(command, script);
  const master = (port) => ({ options: { host: "m", port }, callBuffer });
  return {
    "ioredis": () => ({ callBuffer }),
    "ioredis, a Cluster": () => ({
      isCluster: true,
      callBuffer,
      options: {},
      slots: Array.from({ length: 16_384 }, (_, slot) => [`m:${slot % 3}`]),
      nodes: () => [0, 1, 2].map(master),
    }),
    "node-redis": () => ({ withTypeMapping() {}, sendCommand: ([command, script]) => answer(String(command), script) }),
    "node-redis, a Cluster": () => ({
      withTypeMapping() {},
      sendCommand: (_name, _reads, [command, script]) => answer(String(command), script),
      slots: Array.from({ length: 16_384 }, (_, slot) => ({ master: { id: String(slot % 3) } })),
    }),
    "@upstash/redis": () => ({ eval: (script) => answer("EVAL", script), evalsha: () => answer("EVALSHA", "") }),
  };
})();

test("the share in an outage is that of the nodes that Redis has counted, of which the policy says the least number", async () => {
  const all = Object.entries(COUNTED).flatMap(([name, connected]) => [[undefined, 400], [4, 200]].map((share) => [name, connected, ...share]));
  await Promise.all(all.map(async ([name, connected, nodes, share]) => {
    const limiter = new RedisLimiter({ ...SHARED, nodes }, connected());
    for (const key of ["a", "b", "c"].map((key) => `${key}, ${name}, ${nodes}`)) { // of several masters
      await until(async () => (await limiter.peek(key)).allowed); // which takes until others must have counted the limiter
      assert.equal(await drained(async () => (await limiter.check(key)).allowed), share, key);
    }
    await limiter.close();
  }));
});

test("a limiter that Redis has not answered has no share", async () => {
  const away = { callBuffer: async () => { throw new Error("Connection is closed."); } };
  const limiters = [undefined, 2].map((nodes) => new RedisLimiter({ ...SHARED, nodes }, away));
  for (const limiter of limiters) assert.equal((await limiter.check("a")).allowed, false);
  await Promise.all(limiters.map((limiter) => limiter.close()));
});
