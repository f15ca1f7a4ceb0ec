// The limiter by the client `@upstash/redis`. The service cannot be had here, so a mock of its HTTP stands in front of a real Redis: it takes
// commands as JSON, and returns texts, in base64 if the request asks for it.
import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import { after, test } from "node:test";

import { Redis as Upstash } from "@upstash/redis";
import { Redis } from "ioredis";

import { load } from "../installed.mjs";
import { startServer } from "../redis.mjs";
import { until } from "../waiting.mjs";

const { RedisLimiter } = await load("tidegate/redis");
const redis = await startServer();
const io = new Redis({ path: redis.path });
let isBroken = false;

/** A reply as JSON carries it: a text that is no UTF-8 is damaged unless it is in base64. */
function texts(value, encode) {
  if (Array.isArray(value)) return value.map((each) => texts(each, encode));
  return Buffer.isBuffer(value) ? encode(value) : value;
}

async function run([command, ...words], encode) {
  try {
    return { result: texts(await io.callBuffer(command, words), encode) };
  } catch (error) {
    return { error: error.message };
  }
}

const mock = http.createServer(async (request, response) => {
  const body = JSON.parse((await request.setEncoding("utf8").toArray()).join(""));
  if (isBroken) return request.destroy();
  const isBase64 = request.headers["upstash-encoding"] === "base64";
  const encode = (bytes) => (isBase64 && bytes.toString() !== "OK" ? bytes.toString("base64") : bytes.toString());
  const isPipeline = request.url === "/pipeline";
  const told = isPipeline ? await Promise.all(body.map((command) => run(command, encode))) : await run(body, encode);
  response.writeHead(told.error === undefined ? 200 : 400, { "content-type": "application/json" }).end(JSON.stringify(told));
}).listen(0, "127.0.0.1");
await once(mock, "listening");
after(async () => {
  mock.close();
  mock.closeAllConnections();
  io.disconnect();
  await redis.stop();
});

const limits = [{ algorithm: "token_bucket", name: "own", capacity: 5, rate: "1/h" }, { algorithm: "fixed_window", name: "all", limit: 7, period: "1h", depth: 1 }];
const NOW = 1_700_000_004_000_000;
const options = { url: `http://127.0.0.1:${mock.address().port}`, token: "secret", retry: false, enableTelemetry: false };

for (const [name, more] of Object.entries({ "as it comes": {}, "without base64": { responseEncoding: false }, "one command a request": { enableAutoPipelining: false } })) {
  test(`${name}: it shares the states with another client, byte by byte`, async () => {
    await io.flushall();
    await io.script("FLUSH");
    const limiters = [new Upstash({ ...options, ...more }), io].map((client) => new RedisLimiter({ limits }, client, { deadline: "5s" }));
    const answers = [];
    for (let step = 0; step < 12; step++) answers.push(await limiters[step % 2].decide(`org/user-${step % 3}é`, { now: NOW + step }));
    assert.deepEqual(answers.filter(({ degraded }) => degraded), []);
    assert.deepEqual(answers.map(({ limits }) => limits.find(({ name }) => name === "all").remaining), [6, 5, 4, 3, 2, 1, 0, 0, 0, 0, 0, 0]);
    const keys = Array.from({ length: 40 }, (_, place) => `key-${place}`);
    const granted = await Promise.all(keys.flatMap((key) => limiters.map((limiter) => Promise.all(Array.from({ length: 4 }, () => limiter.check(key, { now: NOW }))))));
    assert.equal(granted.flat().filter(({ allowed, degraded }) => allowed && degraded === undefined).length, 40 * 5);
    await Promise.all(limiters.map((limiter) => limiter.close()));
  });
}

test("a broken connection, and errors of Redis: nothing is granted, and no error shows a key", async () => {
  const [closed, open] = ["closed", "open"].map((on_error) => new RedisLimiter({ limits, on_error }, new Upstash(options), { deadline: "5s" }));
  assert.equal((await closed.check("org/secret-key")).allowed, true);
  isBroken = true;
  for (const [limiter, passes] of [[closed, false], [open, true]]) {
    const { allowed, degraded } = await limiter.check("org/other");
    assert.deepEqual([allowed, degraded.startsWith("redis: ")], [passes, true], degraded);
  }
  isBroken = false;
  await until(async () => (await closed.check("org/asked")).degraded === undefined); // it asks by itself whether Redis is back
  const [stored] = await io.keys("*secret-key*");
  await io.del(stored);
  await io.rpush(stored, "of another program");
  const { degraded } = await closed.check("org/secret-key");
  assert.match(degraded, /^redis: WRONGTYPE Operation against a key holding the wrong kind of value$/);
  await io.replicaof("127.0.0.1", "1");
  const refused = await closed.check("org/new");
  await io.replicaof("no", "one");
  assert.match(refused.degraded, /^redis: READONLY /);
  assert.ok(!refused.degraded.includes("org/new"), refused.degraded);
  await Promise.all([closed.close(), open.close()]);
});
