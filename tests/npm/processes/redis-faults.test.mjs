// A limiter on a Redis that stops, dies or says what it cannot say: `on_error` decides in time, nothing is granted by mistake, and the
// limiter goes on once Redis is back.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";

import { Redis } from "ioredis";
import { createClient } from "redis";

import { load } from "../installed.mjs";
import { startServer } from "../redis.mjs";
import { decided } from "../waiting.mjs";

const { RedisLimiter } = await load("tidegate/redis");

const unhandled = [];
process.on("unhandledRejection", (error) => unhandled.push(error));
after(() => assert.deepEqual(unhandled, []));

const limits = [{ algorithm: "fixed_window", limit: 1_000, period: "36500d" }];
const NOW = 1_700_000_000_000_000;

/** Both clients of one Redis, and how they end. */
const CLIENTS = {
  ioredis: async (path) => {
    const client = new Redis({ path, retryStrategy: () => 20 }).on("error", () => {});
    return { client, end: () => client.disconnect() };
  },
  redis: async (path) => {
    const client = createClient({ socket: { path, reconnectStrategy: () => 20 } }).on("error", () => {});
    await client.connect();
    return { client, end: () => client.destroy() };
  },
};

for (const [name, connected] of Object.entries(CLIENTS)) {
  test(`${name}: Redis stops, and goes on`, async (t) => {
    const redis = await startServer();
    t.after(redis.stop);
    const { client, end } = await connected(redis.path);
    t.after(end);
    const [open, closed] = ["open", "closed"].map((on_error) => new RedisLimiter({ limits, on_error }, client, { deadline: "100ms" }));
    assert.ok((await decided(() => closed.check("a"))).remaining >= 900);
    redis.server.kill("SIGSTOP");
    const answers = await Promise.all(Array.from({ length: 500 }, (_, place) => [open, closed][place % 2].check(`key-${place % 50}`)));
    for (const [place, answer] of answers.entries()) {
      assert.deepEqual(answer, { allowed: place % 2 === 0, degraded: "redis: no answer within 100 ms" });
    }
    const grant = await open.decide("a");
    assert.deepEqual({ ...grant }, { allowed: true, degraded: "redis: no answer within 100 ms" });
    assert.equal(await grant.refund(), undefined, "nobody knows that it was taken");
    await assert.rejects(closed.block("blocked", "1m"), { name: "LimiterError", code: "UNAVAILABLE", message: "redis: no answer within 100 ms" });
    await assert.rejects(open.reset("blocked"), { code: "UNAVAILABLE" });
    redis.server.kill("SIGCONT");
    assert.ok((await decided(() => closed.check("a"))).remaining >= 900);
    await Promise.all([open.close(), closed.close()]);
  });

  test(`${name}: Redis dies, and another one starts`, async (t) => {
    const redis = await startServer();
    t.after(redis.stop);
    const { client, end } = await connected(redis.path);
    t.after(end);
    const limiter = new RedisLimiter({ limits }, client, { deadline: "100ms" });
    await decided(() => limiter.check("a"));
    redis.server.kill("SIGKILL");
    await once(redis.server, "exit");
    const { allowed, degraded, ...numbers } = await limiter.check("a");
    assert.deepEqual([allowed, typeof degraded, numbers], [false, "string", {}]);
    const next = await startServer(redis.path);
    t.after(next.stop);
    assert.ok((await decided(() => limiter.check("a"))).remaining >= 900, "the script is sent whole to a Redis that does not know it");
    await limiter.close();
  });
}

test("while Redis does not answer, one question at a time asks whether it is back, and no request waits for it", async () => {
  const sent = [];
  const client = { callBuffer: (command, words) => new Promise((resolve, reject) => sent.push({ command, words, resolve, reject })) };
  const limiter = new RedisLimiter({ limits, on_error: "open" }, client, { deadline: "50ms" });
  const late = { allowed: true, degraded: "redis: no answer within 50 ms" };
  assert.deepEqual(await limiter.check("a"), late);
  for (let asked = 0; asked < 40; asked++) assert.deepEqual(await limiter.check(`key-${asked}`), late);
  assert.deepEqual(sent.map(({ command }) => command), ["EVALSHA", "EVAL"]);
  assert.deepEqual(sent[1].words, ["return 1", "1", sent[0].words[2]]);
  sent[1].resolve(1);
  await new Promise(setImmediate);
  const asked = limiter.check("b");
  await new Promise(setImmediate);
  sent[2].resolve(0);
  assert.equal((await asked).remaining, 999);
  await limiter.close();
});

for (const [name, connected] of Object.entries(CLIENTS)) {
  test(`${name}: a value of another type, and a Redis that takes no writes`, async (t) => {
    const redis = await startServer();
    t.after(redis.stop);
    const [{ client, end }, admin] = [await connected(redis.path), await CLIENTS.ioredis(redis.path)];
    for (const each of [end, admin.end]) t.after(each);
    const limiter = new RedisLimiter({ limits: [{ ...limits[0], limit: 1 }] }, client, { deadline: "10s" });
    assert.deepEqual([(await limiter.check("a")).allowed, (await limiter.check("b")).allowed], [true, true]);
    const [stored] = await admin.client.keys("*:a}:*");
    await admin.client.del(stored);
    await admin.client.rpush(stored, "of another program");
    assert.match((await limiter.check("a", { cost: 0 })).degraded, /^redis: WRONGTYPE /);
    const local = new RedisLimiter({ limits: [{ ...limits[0], limit: 1 }], on_error: "local", nodes: 1 }, client, { deadline: "10s" });
    const { allowed: hasShare, degraded: found } = await local.check("a");
    assert.deepEqual([hasShare, /^redis: WRONGTYPE [^;]+$/.test(found)], [false, true], found);
    await local.close();
    assert.deepEqual(await admin.client.lrange(stored, 0, -1), ["of another program"], "it is not overwritten");
    await admin.client.replicaof("127.0.0.1", "1");
    const { allowed, degraded } = await limiter.check("new");
    assert.equal(allowed, false);
    assert.match(degraded, /^redis: READONLY /);
    const refused = await limiter.check("b");
    assert.deepEqual([refused.allowed, refused.degraded, refused.remaining], [false, undefined, 0], "a refusal needs no write");
    await admin.client.replicaof("no", "one");
    assert.equal((await limiter.check("new")).allowed, true);
    await limiter.close();
  });
}

test("a client that is not connected: on_error decides, and close ends", async () => {
  const path = join(mkdtempSync(join(tmpdir(), "tidegate-none-")), "none.sock");
  const io = new Redis({ path, lazyConnect: true, retryStrategy: () => null }).on("error", () => {});
  const node = createClient({ socket: { path } }).on("error", () => {});
  for (const client of [io, node]) {
    const limiter = new RedisLimiter({ limits, on_error: "open" }, client, { deadline: "100ms" });
    const asked = limiter.check("a");
    await limiter.close();
    const { allowed, degraded } = await asked;
    assert.deepEqual([allowed, degraded.startsWith("redis: ")], [true, true]);
  }
  io.disconnect();
});

test("in shadow a request passes without Redis", async () => {
  const limiter = new RedisLimiter({ limits, shadow: true }, { callBuffer: async () => 7 });
  assert.equal((await limiter.check("a")).allowed, true);
});

test("lists need no Redis", async () => {
  const client = { callBuffer: () => { throw new Error("never"); } };
  const limiter = new RedisLimiter({ limits, deny: ["bad"], allow: ["good"] }, client);
  const never = Number.MAX_SAFE_INTEGER;
  assert.deepEqual(await limiter.check("bad"), { allowed: false, limit: 0, remaining: 0, retryAfterUs: never, resetAfterUs: never, denied: true });
  assert.equal((await limiter.check("good")).allowed, true);
});

const bytes = (text) => Buffer.from(text);
const HOSTILE = {
  "another number": () => 1,
  "no number": () => NaN,
  "a text": () => "OK",
  "nothing": () => null,
  "bytes": () => bytes("0"),
  "an object": () => ({ 0: 0, length: 1 }),
  "an empty list": () => [],
  "a list of too many": () => [0, 0],
  "a partition that is no list": () => ["0x"],
  "a partition without bytes": () => [[]],
  "a partition with too many": () => [[bytes("a"), bytes("b")]],
  "a text in place of bytes": () => [["a"]],
  "a list in place of bytes": () => [[[[]]]],
  "the bytes of another version": () => [[bytes("\xff\xff\xff\xff")]],
  "no bytes of a state": () => [[bytes("")]],
  "long bytes": () => [[Buffer.alloc(1 << 20, 255)]],
  "an error of Redis in a list": () => [[new Error("OOM command not allowed when used memory > 'maxmemory'.")]],
  "a value of another type": () => [[new Error("WRONGTYPE Operation against a key")]],
  "an error of Redis": () => { throw new Error("READONLY You can't write against a read only replica."); },
  "an error of the client": async () => { throw new Error("Connection is closed."); },
  "no error": async () => { throw undefined; },
  "a script that stays unknown": async () => { throw new Error("NOSCRIPT No matching script."); },
};

for (const [what, reply] of Object.entries(HOSTILE)) {
  test(`${what}: nothing is granted, and the next reply counts`, async () => {
    let isHostile = true;
    const client = { callBuffer: () => (isHostile ? reply() : 0) };
    const [closed, open] = ["closed", "open"].map((on_error) => new RedisLimiter({ limits, on_error }, client, { deadline: "100ms" }));
    const answer = await closed.decide("a", { now: NOW });
    assert.deepEqual([answer.allowed, typeof answer.degraded, answer.remaining], [false, "string", undefined], answer.degraded);
    assert.equal((await open.check("a", { now: NOW })).allowed, true, "as the policy says");
    await assert.rejects(open.block("a", "1m", { now: NOW }), { code: "UNAVAILABLE" });
    isHostile = false;
    assert.deepEqual([(await closed.check("a", { now: NOW })).remaining, closed.waiting], [999, 0]);
  });
}

test("a Redis whose state changes at each look: the limiter gives up after a deadline", async () => {
  const other = new RedisLimiter({ limits }, { callBuffer: async (_, words) => (stored.push(words[4]), 0) });
  const stored = [];
  for (let count = 0; count < 3; count++) await other.check("a", { now: NOW + count });
  let look = 0;
  const limiter = new RedisLimiter({ limits }, { callBuffer: async () => [[stored[look++ % 3]]] }, { deadline: "50ms" });
  const { allowed, degraded } = await limiter.check("a", { now: NOW });
  assert.deepEqual([allowed, degraded], [false, "redis: other writers kept changing the same state for 50 ms"]);
});

test("an event loop that stands still while another writer comes first: the limiter asks again", async () => {
  const stored = [];
  const other = new RedisLimiter({ limits }, { callBuffer: async (_, words) => (stored.push(words[4]), 0) });
  for (let count = 0; count < 3; count++) await other.check("a", { now: NOW + count });
  let calls = 0;
  const callBuffer = async () => {
    calls++;
    for (const until = performance.now() + (calls === 2 ? 100 : 0); performance.now() < until;);
    return calls < 3 ? [[stored[calls]]] : 0;
  };
  const limiter = new RedisLimiter({ limits }, { callBuffer }, { deadline: "50ms" });
  const { allowed, degraded } = await limiter.check("a", { now: NOW });
  assert.deepEqual([allowed, degraded, calls], [true, undefined, 3]);
});

test("half a reply, then a closed connection: an error, and nothing granted", async () => {
  const server = createServer((socket) => {
    socket.on("error", () => {});
    socket.on("data", (data) => {
      const text = data.toString("latin1").toUpperCase();
      if (text.includes("EVALSHA")) socket.end("*1\r\n*1\r\n$100\r\nhalf");
      else socket.write("+OK\r\n".repeat(text.match(/^\*\d+\r$/gm).length));
    });
  });
  const path = join(mkdtempSync(join(tmpdir(), "tidegate-half-")), "half.sock");
  server.listen(path);
  await once(server, "listening");
  const client = new Redis({ path, enableReadyCheck: false, retryStrategy: () => 5, maxRetriesPerRequest: 1, disableClientInfo: true });
  client.on("error", () => {});
  const limiter = new RedisLimiter({ limits }, client, { deadline: "200ms" });
  const { allowed, degraded } = await limiter.check("a");
  assert.deepEqual([allowed, degraded.startsWith("redis: ")], [false, true], degraded);
  client.disconnect();
  server.close();
});

test("a blocked event loop is no outage", async (t) => {
  const redis = await startServer();
  t.after(redis.stop);
  const { client, end } = await CLIENTS.ioredis(redis.path);
  t.after(end);
  const limiter = new RedisLimiter({ limits }, client, { deadline: "100ms" });
  await decided(() => limiter.check("a"));
  const asked = limiter.check("a");
  await new Promise(setImmediate); // the command is sent
  const later = `require("net").connect(${JSON.stringify(redis.path)}).end("PING\\r\\n").resume()`; // Redis answers in order
  for (const until = performance.now() + 300; performance.now() < until;) execFileSync(process.execPath, ["-e", later]);
  assert.equal((await asked).degraded, undefined);
  await limiter.close();
});

test("checks beyond those that may wait on a key get `on_error` at once, as at a host, and say so", async () => {
  for (const [on_error, passes] of [["open", true], ["closed", false], ["local", false]]) {
    let answer = () => {};
    const isAnswering = new Promise((resolve) => {
      answer = resolve;
    });
    const limiter = new RedisLimiter({ limits, on_error, ...(on_error === "local" ? { nodes: 1 } : {}) }, { callBuffer: async () => (await isAnswering, 0) }, { deadline: "10s" });
    const waiting = Array.from({ length: 8_192 }, () => limiter.check("a"));
    assert.deepEqual(await limiter.check("a"), { allowed: passes, degraded: "redis: 8192 operations are already waiting" });
    await assert.rejects(limiter.block("a", "1m"), { code: "UNAVAILABLE", message: "redis: 8192 operations are already waiting" });
    const other = limiter.check("b");
    answer();
    assert.equal((await other).degraded, undefined, "another key has places");
    const answers = await Promise.all(waiting);
    assert.equal(answers.filter(({ allowed, degraded }) => allowed && degraded === undefined).length, 1_000);
    await limiter.close();
  }
});
