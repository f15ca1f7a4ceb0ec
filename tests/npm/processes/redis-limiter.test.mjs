// The limiter on Redis answers as the limiter in memory does, through both clients, and stores the bytes that the host stores.
import assert from "node:assert/strict";
import { after, test } from "node:test";

import { Redis } from "ioredis";
import { createClient, createClientPool } from "redis";

import { load } from "../installed.mjs";
import { startServer } from "../redis.mjs";
import { replayByPromises } from "../replay.js";
import { readVectors } from "../vectors.mjs";

const { Limiter } = await load();
const { toml } = await load("tidegate/toml");
const { RedisLimiter, ...errors } = await load("tidegate/redis");

const redis = await startServer();
const io = new Redis({ path: redis.path });
const node = createClient({ socket: { path: redis.path } }).on("error", () => {});
await node.connect();
after(async () => {
  io.disconnect();
  node.destroy();
  await redis.stop();
});

const NOW = 1_700_000_004_000_000;
const SECOND = 1_000_000;
const CLIENTS = [io, node];

const bucket = { algorithm: "token_bucket", name: "burst", capacity: 3, rate: "3/s" };
const minute = { algorithm: "fixed_window", name: "minute", limit: 5, period: "1m" };
const places = { algorithm: "concurrency", capacity: 2, time_to_live: "10s" };

/** A limiter that waits for Redis, and whose names in it no other test uses. */
let count = 0;
const of = (policy, { client = io, ...options } = {}) => new RedisLimiter(policy, client, { prefix: `test-${count++}:`, deadline: "10s", ...options });

test("the entry exports the limiter and the errors", () => {
  assert.deepEqual(Object.keys(errors).sort(), ["ArgumentError", "FullError", "LimiterError", "PolicyError", "default"].sort());
  assert.equal(errors.default, RedisLimiter);
});

for (const [name, vector] of Object.entries(readVectors())) {
  test(`${name}: ${vector.about}`, async () => {
    const prefix = `vector-${name}:`;
    const limiter = of({ policies: { [name]: vector.policy } }, { client: CLIENTS[count % 2], prefix });
    assert.ok(await replayByPromises(limiter, name, vector) > 0);
    await limiter.close();
    const names = await io.keys(`${prefix}*`);
    const stored = await Promise.all(names.map(async (name) => (await io.getBuffer(name)).toString("hex")));
    const known = new Set(Object.values(vector.states).flat());
    assert.deepEqual(stored.filter((bytes) => !known.has(bytes)), [], "the bytes that every store has");
  });
}

/** Numbers that seem random and are the same in each run. */
function random(seed) {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** What a call comes to: an answer without methods, or an error. */
async function outcome(call) {
  try {
    return { ...await call() };
  } catch (error) {
    return { name: error.name, code: error.code, message: error.message };
  }
}

const POLICIES = {
  "a bucket and a window": { limits: [bucket, minute] },
  "a shared window, overrides and lists": {
    limits: [{ ...minute, limit: 9, depth: 1 }, bucket],
    overrides: { "acme/b": { limits: [{ ...bucket, capacity: 5 }] } }, deny: ["acme/denied"], allow: ["acme/free"],
  },
  "leases beside a window": { limits: [{ ...minute, limit: 20 }, places] },
  "a log and a penalty": {
    limits: [{ algorithm: "sliding_log", rates: ["3/10s"], min_gap: "1s" }, { algorithm: "penalty", refusals: 3, within: "1m", duration: "20s" }],
  },
  "in shadow": { limits: [{ ...bucket, warn_at: "50%" }, minute], shadow: true },
  "reservations": { limits: [{ ...minute, limit: 30 }], reservations: { time_to_live: "20s" } },
};
const KEYS = ["acme/a", "acme/b", "acme/denied", "acme/free", "other", "ip:2001:db8::1", "ip:x", ""];

for (const [name, policy] of Object.entries(POLICIES)) {
  // each of two limiters in turn finds what the other one has written
  for (const [by, clients] of [["ioredis", [io, io]], ["redis", [node, node]], ["both", [io, node]], ["one", [io]]]) {
    test(`${name}, by ${by}: 400 calls are answered as in memory`, async () => {
      const expected = new Limiter(policy);
      const prefix = `random-${count++}:`;
      const each = clients.map((client) => of(policy, { client, prefix }));
      const pick = random(name.length);
      const codes = new Set();
      for (let step = 0, now = NOW; step < 400; step++, now += pick(3) * SECOND) {
        const [key, cost, lease, span] = [KEYS[pick(KEYS.length)], pick(7), `lease-${pick(4)}`, [0, "1s"][pick(2)]];
        const call = [
          (limiter) => limiter.check(key, { cost, now }),
          (limiter) => limiter.decide(key, { cost, lease, now }),
          (limiter) => limiter.peek(key, { cost, now }),
          (limiter) => limiter.acquire(key, { cost, lease, now }),
          (limiter) => limiter.renew(key, lease, { now }),
          (limiter) => limiter.release(key, lease, { now }),
          (limiter) => limiter.reserve(key, { cost, id: lease, timeToLive: "15s", now }),
          (limiter) => limiter.commit(key, lease, cost, { now }),
          (limiter) => limiter.refund(key, cost, { now }),
          (limiter) => limiter.block(key, span, { now }),
          (limiter) => limiter.reset(key, { now }),
          (limiter) => limiter.explain(key, { cost, now }),
        ][pick(12)];
        const wanted = await outcome(() => call(expected));
        assert.deepEqual(await outcome(() => call(each[step % each.length])), wanted, `step ${step}: ${call} on ${key}, ${cost}, ${lease}, ${now}`);
        codes.add(wanted.code ?? wanted.allowed);
      }
      assert.ok(codes.has(true) && codes.size > 2, [...codes].join());
      await Promise.all(each.map((limiter) => limiter.close()));
    });
  }
}

test("what throws in memory rejects here, with the same error", async () => {
  const policy = { limits: [bucket, minute] };
  const [expected, found] = [new Limiter(policy), of(policy)];
  for (const call of [
    (limiter) => limiter.check(7), (limiter) => limiter.check("x".repeat(513)), (limiter) => limiter.check("é".repeat(300)),
    (limiter) => limiter.check("\ud800"), (limiter) => limiter.check("a", { cost: -1 }), (limiter) => limiter.check("a", { cost: 4 }),
    (limiter) => limiter.check("a", { now: 0.5 }), (limiter) => limiter.check("a", { price: 1 }), (limiter) => limiter.acquire("a"),
    (limiter) => limiter.renew("a", "b"), (limiter) => limiter.release("a", 7), (limiter) => limiter.commit("a", "b", 1),
    (limiter) => limiter.reserve("a"), (limiter) => limiter.refund("a", 0), (limiter) => limiter.block("a", "soon"),
    (limiter) => limiter.decide("a", { class: "none" }), (limiter) => limiter.decide("a", null), (limiter) => limiter.explain("a", { cost: 7 }),
    (limiter) => limiter.waitFor("a", { cost: 0 }), (limiter) => limiter.waitFor("a", { now: 5 }), (limiter) => limiter.waitFor(7),
    (limiter) => limiter.waitFor("a", { cost: 7 }), (limiter) => limiter.waitFor("a", { signal: {} }), (limiter) => limiter.waitFor("a", { jitter: 2 }),
  ]) {
    const wanted = await outcome(() => call(expected));
    assert.equal(typeof wanted.code, "string", `${call}`);
    const { message, ...same } = await outcome(() => call(found));
    assert.deepEqual(same, { name: wanted.name, code: wanted.code }, `${call}`);
    if (!/`price`|`now`$/.test(message)) assert.equal(message, wanted.message);
  }
  const { message } = await outcome(() => found.check("a", { limits: [bucket] }));
  assert.equal(message, "`limits`: expected no limits of a call, which need a `Limiter` in memory");
  for (const name of ["set", "resetAll", "dump", "restore", "update", "limited", "sweep", "free"]) {
    assert.throws(() => found[name]("a", 1), { code: "INVALID_REQUEST", message: `\`${name}\`: needs a \`Limiter\`, which has all states in memory` });
  }
  const leases = of({ limits: [places] });
  await assert.rejects(leases.check("a"), { code: "NEEDS_LEASE" });
});

test("a getter of a time is read once", async () => {
  let reads = 0;
  const once = { get now() { return reads++ === 0 ? 1_700_000_000_000_000 : undefined; } };
  assert.equal((await of({ limits: [bucket] }).check("once", once)).allowed, true);
  assert.equal(reads, 1);
});

test("the constructor refuses what is no policy, no client and no option", () => {
  const policy = { limits: [bucket] };
  assert.throws(() => new RedisLimiter(toml("limits = []\nlimit = 3"), io), { code: "INVALID_POLICY", line: 2, column: 1, path: "limit" });
  assert.throws(() => new RedisLimiter({ limits: [] }, io), { code: "INVALID_POLICY", message: "`limits`: expected 1 to 16 limits, found 0" });
  for (const [client, found] of [
    [undefined, "undefined"], [null, "null"], ["redis://localhost", "a string"], [{}, "another object"],
  ]) {
    assert.throws(() => new RedisLimiter(policy, client), { code: "INVALID_OPTION", message: new RegExp(`^\`client\`: expected a client of .*; found ${found}$`) });
  }
  for (const options of [{ deadline: "999us" }, { deadline: 250 }, { deadline: "2h" }, { prefix: 7 }, { deadlines: 1 }, { policy: 7 }]) {
    assert.throws(() => new RedisLimiter(policy, io, options), { name: "ArgumentError" });
  }
});

test("a policy file in TOML has the names that a host has in Redis", async () => {
  const file = '[policies.login]\nlimits = [{ algorithm = "fixed_window", limit = 1, period = "36500d" }]\n';
  const limiter = of(toml(file), { prefix: "host:" });
  assert.deepEqual([(await limiter.check("a")).allowed, (await limiter.check("a")).allowed], [true, false]);
  const [name, ...others] = await io.keys("host:*");
  assert.deepEqual(others, []);
  assert.match(name, /^host:.*login.*a/);
});

test("a pool of clients, and a client with a prefix of its own", async () => {
  const pool = await createClientPool({ socket: { path: redis.path } }).connect();
  const prefixed = new Redis({ path: redis.path, keyPrefix: "own:" });
  const policy = { limits: [{ ...minute, period: "36500d", depth: 0 }, { ...bucket, rate: "3/h" }] };
  const one = of(policy, { client: pool, prefix: "own:pool:" });
  const other = of(policy, { client: prefixed, prefix: "pool:" });
  for (const [limiter, remaining] of [[one, 2], [other, 1], [one, 0]]) assert.equal((await limiter.check("a")).remaining, remaining);
  await Promise.all([one.close(), other.close()]);
  pool.destroy();
  prefixed.disconnect();
});

test("calls that begin together share a call to Redis", async () => {
  const limiter = of({ limits: [{ ...minute, limit: 1_000, start: "first" }] });
  await limiter.check("a");
  const calls = async () => Number(/calls=(\d+)/.exec(/cmdstat_evalsha:(.*)/.exec(await io.info("commandstats"))[1])[1]);
  const before = await calls();
  const answers = await Promise.all(Array.from({ length: 600 }, () => limiter.check("a")));
  assert.equal(answers.filter(({ allowed }) => allowed).length, 600);
  assert.equal(new Set(answers.map(({ remaining }) => remaining)).size, 600);
  assert.ok(await calls() - before <= 2, `${await calls() - before} calls`);
  const keys = await Promise.all(Array.from({ length: 600 }, (_, place) => limiter.check(`key-${place}`)));
  assert.equal(keys.filter(({ remaining }) => remaining === 999).length, 600);
});

test("a grant gives units and its lease back", async () => {
  const limiter = of({ limits: [{ ...minute, limit: 9 }, places] });
  const grant = await limiter.decide("a", { cost: 5, now: NOW });
  assert.equal((await grant.refund(2, { now: NOW })).limits[0].remaining, 6);
  await assert.rejects(grant.refund(4, { now: NOW }), { code: "INVALID_REQUEST" });
  const [all, none] = await Promise.all([grant.refund(undefined, { now: NOW }), grant.refund(undefined, { now: NOW })]);
  assert.deepEqual([all.limits[0].remaining, none], [9, undefined], "once");
  assert.equal((await grant.renew({ now: NOW })).live, true);
  assert.deepEqual([await grant.release({ now: NOW }), await grant.release({ now: NOW })], [true, false]);
  const refused = await limiter.decide("a", { cost: 9, now: NOW });
  const another = await limiter.decide("a", { cost: 1, now: NOW });
  assert.deepEqual([refused.allowed, another.allowed, await another.refund()], [true, false, undefined]);
});

test("a limiter that is closed answers what it was asked before, and nothing after", async () => {
  const limiter = of({ limits: [{ ...minute, start: "first" }] });
  const asked = [limiter.check("a"), limiter.check("a")];
  assert.equal(limiter.waiting, 2);
  const closed = limiter.close();
  await assert.rejects(limiter.check("a"), { code: "FREED", message: "the limiter has been closed" });
  await closed;
  assert.deepEqual((await Promise.all(asked)).map(({ remaining }) => remaining), [4, 3]);
  assert.equal(limiter.waiting, 0);
  await limiter.close();
  assert.equal(await io.ping(), "PONG", "the client is the caller's");
});
