// express-rate-limit with its own store and with ours: the same random calls, and the same requests to real servers.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createRequire } from "node:module";
import { describe, test } from "node:test";
import { MemoryStore, rateLimit } from "express-rate-limit";

import { compare, moveClock, ours, outcome, pick, randomFrom, START_MS } from "../dropin.mjs";
import { serve } from "../frameworks.mjs";

const express = createRequire(import.meta.url)("express");
const { MemoryStore: OwnStore } = await ours("express-rate-limit");

const KEYS = ["a", "b", "192.0.2.1", "ip:not an address", "2001:db8::/56", "", 7, "7", undefined];

describe("the store, more than 10,000 calls", () => {
  for (const [place, windowMs] of [1_000, 60_000, 250.5].entries()) {
    test(`windows of ${windowMs} ms`, async (t) => {
      const move = moveClock(t, ["Date", "setInterval"]);
      const stores = [new MemoryStore(), new OwnStore()];
      for (const store of stores) store.init({ windowMs });
      const step = (random) => move(Math.floor(pick(random, [0, 0, 0, 1, windowMs / 7, windowMs / 2, windowMs])));
      const names = ["increment", "increment", "increment", "increment", "decrement", "get", "get", "resetKey"];
      const call = (random) => {
        if (random(300) === 0) return { name: "resetAll", args: [] };
        return { name: pick(random, names), args: [pick(random, KEYS)] };
      };
      const seed = 300 + place;
      // see "what differs"
      const skips = async ({ name, args: [key] }) => name === "decrement" && (await stores[0].get(key)) === undefined;
      const counts = await compare({ seed, calls: 4_000, limiters: stores, step, call, skips });
      t.diagnostic(`seed ${seed}: ${JSON.stringify(counts)}`);
    });
  }
});

test("a window that began keeps its end when the length changes", async (t) => {
  const move = moveClock(t, ["Date", "setInterval"]);
  for (const store of [new MemoryStore(), new OwnStore()]) {
    store.init({ windowMs: 1_000 });
    await store.increment("a");
    store.init({ windowMs: 5_000 });
    const { resetTime } = await store.increment("a");
    assert.equal(resetTime.getTime() - Date.now(), 1_000);
  }
  move(1_000);
});

describe("express with the real middleware", () => {
  const options = [
    { windowMs: 60_000, limit: 3, standardHeaders: "draft-8" },
    { windowMs: 1_000, limit: 2, standardHeaders: "draft-7", legacyHeaders: false, skipFailedRequests: true },
    { windowMs: 10_000, limit: 4, standardHeaders: "draft-6", skipSuccessfulRequests: true },
  ];
  options.forEach((option, place) => {
    test(`600 requests: ${JSON.stringify(option)}`, async (t) => {
      const ports = [];
      const ended = [];
      const middlewares = [];
      for (const store of [new MemoryStore(), new OwnStore()]) {
        const app = express();
        const validate = { creationStack: false };
        const limit = rateLimit({ ...option, store, validate, keyGenerator: (request) => request.get("x-user") });
        app.use((request, response, next) => {
          ended.push(once(response, "close"));
          next();
        });
        app.use(limit);
        app.get("/:status", ({ params, rateLimit: { limit, used, remaining, resetTime, key } }, response) => {
          response.status(Number(params.status)).json({ limit, used, remaining, resetTime, key });
        });
        ports.push(await serve(t, app));
        middlewares.push(limit);
      }
      const move = moveClock(t, ["Date", "setInterval"]);
      const random = randomFrom(400 + place);
      for (let count = 0; count < 600; count++) {
        move(pick(random, [0, 0, 1, 200, 3_000]));
        const [user, status] = [pick(random, ["alice", "bob"]), pick(random, [200, 200, 404])];
        const answers = await Promise.all(ports.map((port) => ask(port, user, status)));
        assert.deepEqual(answers[1], answers[0], `seed ${400 + place}, request ${count}`);
        await Promise.all(ended.splice(0));
        await new Promise(setImmediate); // a response that has ended may take its hit back
        if (random(20) === 0) for (const limit of middlewares) limit.resetKey(user);
        const [one, other] = await Promise.all(middlewares.map((limit) => outcome(limit.getKey(user))));
        assert.deepEqual(other, one);
      }
    });
  });

  async function ask(port, user, status) {
    const response = await fetch(`http://127.0.0.1:${port}/${status}`, { headers: { "x-user": user } });
    const { date, etag, ...headers } = Object.fromEntries(response.headers);
    return { status: response.status, headers, body: await response.text() };
  }
});

test("several limiters of one request do not count twice", async (t) => {
  const errors = [];
  const app = express();
  const logger = { error: (error) => errors.push(error), warn: (error) => errors.push(error) };
  for (const windowMs of [1_000, 60_000]) app.use(rateLimit({ windowMs, limit: 2, store: new OwnStore(), logger }));
  app.get("/", (request, response) => response.send("hello"));
  const port = await serve(t, app);
  const statuses = [];
  for (let count = 0; count < 3; count++) statuses.push((await fetch(`http://127.0.0.1:${port}/`)).status);
  assert.deepEqual(statuses, [200, 200, 429]);
  assert.deepEqual(errors, []);
});

test("a prefix keeps the keys of stores apart for the check of double counts", () => {
  const store = new OwnStore({ prefix: "api:" });
  assert.equal(store.prefix, "api:");
  assert.equal(store.localKeys, true);
});

test("shutdown forgets all clients", async () => {
  const store = new OwnStore();
  store.init({ windowMs: 1_000 });
  await store.increment("a");
  store.shutdown();
  assert.equal(await store.get("a"), undefined);
});

describe("what differs", () => {
  test("taking a hit back begins no window: theirs begins one without hits", async (t) => {
    const move = moveClock(t, ["Date", "setInterval"]);
    const ends = [];
    for (const store of [new MemoryStore(), new OwnStore()]) {
      store.init({ windowMs: 1_000 });
      await store.decrement("a");
      ends.push(structuredClone(await store.get("a")));
      move(100);
      assert.equal((await store.increment("a")).totalHits, 1);
    }
    assert.deepEqual(ends, [{ totalHits: 0, resetTime: new Date(START_MS + 1_000) }, undefined]);
  });

  test("a store without room fails, and `passOnStoreError` lets requests pass: theirs takes what memory there is", async () => {
    const store = new OwnStore({ maxBytes: 20_000 });
    store.init({ windowMs: 1_000 });
    await assert.rejects(async () => { for (let count = 0; ; count++) await store.increment(`${count}`); }, { code: "TABLE_FULL" });
    assert.equal((await store.increment("0")).totalHits, 2);
  });

  test("a key is no object, symbol or function", async () => {
    const store = new OwnStore();
    store.init({ windowMs: 1_000 });
    for (const key of [{}, Symbol("a"), () => 1]) await assert.rejects(store.increment(key), { code: "INVALID_KEY" });
  });

  test("each answer is an object of its own: theirs changes the last one", async (t) => {
    moveClock(t, ["Date", "setInterval"]);
    const [one, other] = [new MemoryStore(), new OwnStore()];
    for (const store of [one, other]) store.init({ windowMs: 1_000 });
    const [first, second] = [await one.increment("a"), await other.increment("a")];
    await Promise.all([one.increment("a"), other.increment("a")]);
    assert.deepEqual([first.totalHits, second], [2, { totalHits: 1, resetTime: new Date(START_MS + 1_000) }]);
  });

  test("a window of more than 24.8 days is allowed: Node cannot set theirs' timer", async (t) => {
    moveClock(t, ["Date"]);
    const store = new OwnStore();
    store.init({ windowMs: 30 * 86_400_000 });
    assert.equal((await store.increment("a")).resetTime.getTime(), START_MS + 30 * 86_400_000);
  });
});

describe("misuse", () => {
  for (const [name, use, message] of [
    ["a prefix that is no text", () => new OwnStore({ prefix: 5 }), "`prefix`: expected a string, found 5"],
    ["a window of 0", () => new OwnStore().init({ windowMs: 0 }), "`windowMs`: expected a finite number of at least 1, found 0"],
    ["a window as text", () => new OwnStore().init({ windowMs: "1m" }), '`windowMs`: expected a finite number of at least 1, found "1m"'],
  ]) test(name, () => assert.throws(use, { code: "INVALID_OPTION", message }));

  test("a store that was not initialized", async () => {
    const store = new OwnStore();
    const message = "the store is not initialized: expected `init({ windowMs })` before `increment`, found no call of it; `rateLimit({ store })` makes it";
    await assert.rejects(store.increment("a"), { name: "LimiterError", code: "NOT_INITIALIZED", message });
    await store.decrement("a");
    assert.equal(await store.get("a"), undefined);
    store.init({ windowMs: 1_000 });
    assert.equal((await store.increment("a")).totalHits, 1);
  });
});
