// Keys in a full limiter, in a sweep and in a limiter that is freed.
import assert from "node:assert/strict";
import { test } from "node:test";

import { load } from "./installed.mjs";

const { Limiter } = await load();

const NOW = 1_700_000_000_000_000;
const SECOND = 1_000_000;
const ONE_PER_SECOND = { limits: [{ algorithm: "token_bucket", capacity: 1, rate: "1/s" }] };

test("a full limiter refuses new keys and still decides on known keys", () => {
  const limiter = new Limiter(ONE_PER_SECOND, { maxBytes: 20_000 });
  const full = { name: "FullError", code: "TABLE_FULL", message: /the keys in use fill all 20000 bytes$/ };
  assert.throws(() => { for (let key = 0; ; key++) limiter.check(`${key}`, { cost: 1, now: NOW }); }, full);
  const { size } = limiter;
  assert.ok(size > 50 && limiter.bytes > 5_000 && limiter.bytes <= 20_000, `${size} keys, ${limiter.bytes} bytes`);
  assert.throws(() => limiter.check("c", { cost: 1, now: NOW }), full);
  assert.equal(limiter.size, size);
  assert.equal(limiter.check("0", { cost: 1, now: NOW }).allowed, false);
  assert.equal(limiter.peek("c", { now: NOW }).remaining, 1, "a peek needs no room");

  assert.equal(limiter.check("c", { cost: 1, now: NOW + SECOND }).allowed, true, "all others are as good as new");
  assert.equal(limiter.size, 1);
});

test("a sweep forgets exactly the keys whose state equals that of a new key", () => {
  const limiter = new Limiter(ONE_PER_SECOND);
  limiter.check("a", { cost: 1, now: NOW });
  limiter.check("b", { cost: 1, now: NOW + 1 });
  limiter.sweep({ now: NOW + SECOND - 1 });
  assert.equal(limiter.size, 2);
  limiter.sweep({ now: NOW + SECOND });
  assert.equal(limiter.size, 1);
  assert.equal(limiter.check("b", { cost: 1, now: NOW + SECOND }).allowed, false);
  limiter.sweep();
  assert.equal(limiter.size, 0);
});

test("every operation on a new key tells that the limiter is full", () => {
  const limiter = new Limiter({ limits: [{ algorithm: "concurrency", capacity: 1, time_to_live: "1s" }] }, { maxBytes: 20_000 });
  assert.throws(() => { for (let key = 0; ; key++) limiter.acquire(`${key}`, { now: NOW }); }, { name: "FullError", code: "TABLE_FULL" });
  assert.equal(limiter.acquire("b", { now: NOW + SECOND }).allowed, true, "the leases of the others are over");
});

test("answers stay right while the module's memory grows", () => {
  const limiter = new Limiter({ limits: [{ algorithm: "concurrency", capacity: 64, time_to_live: "1s" }] });
  const peeked = new Limiter(ONE_PER_SECOND);
  for (let index = 0; index < 20_000; index++) {
    const { allowed, remaining, lease } = limiter.acquire(`ключ ${index}`, { lease: `${index}`, now: NOW });
    assert.deepEqual([allowed, remaining, lease], [true, 63, `${index}`]);
    assert.equal(peeked.check("a", { cost: 1, now: NOW }).allowed, index === 0);
  }
  assert.equal(limiter.size, 20_000);
  assert.equal(limiter.release("ключ 7", "7", { now: NOW }).live, true);
});

test("decisions stay right while the module's memory grows", () => {
  const count = 50_000;
  const [one, other] = [new Limiter(ONE_PER_SECOND), new Limiter(ONE_PER_SECOND)];
  const expected = { allowed: true, limit: 1, remaining: 0, retryAfterUs: 0, resetAfterUs: SECOND };
  for (let index = 0; index < count; index++) {
    assert.deepEqual(one.check(`ключ ${index}`, { cost: 1, now: NOW }), expected);
    assert.deepEqual(other.check(`key ${index}`, { cost: 1, now: NOW }), expected);
  }
  assert.deepEqual([one.size, other.size], [count, count]);
  for (let index = 0; index < count; index++) {
    assert.equal(one.check(`ключ ${index}`, { cost: 1, now: NOW }).allowed, false);
    assert.equal(other.check(`key ${index}`, { cost: 1, now: NOW }).allowed, false);
  }
});

test("every call of a freed limiter throws", () => {
  const limiter = new Limiter(ONE_PER_SECOND);
  limiter.free();
  limiter.free();
  const freed = { name: "LimiterError", code: "FREED" };
  assert.throws(() => limiter.check("a", { cost: 1, now: NOW }), freed);
  assert.throws(() => limiter.peek("a", { now: NOW }), freed);
  assert.throws(() => limiter.decide("a"), freed);
  assert.throws(() => limiter.acquire("a"), freed);
  assert.throws(() => limiter.release("a", "lease"), freed);
  assert.throws(() => limiter.sweep({ now: NOW }), freed);
  assert.throws(() => limiter.size, freed);
});

test("a limiter is disposable", { skip: Symbol.dispose === undefined }, () => {
  const limiter = new Limiter(ONE_PER_SECOND);
  limiter[Symbol.dispose]();
  assert.throws(() => limiter.size, { code: "FREED" });
});

test("freed memory is used again", () => {
  const fill = () => {
    const limiter = new Limiter(ONE_PER_SECOND);
    for (let index = 0; index < 2_000; index++) limiter.check(`${index}`.padEnd(512, "x"), { cost: 1, now: NOW });
    limiter.free();
  };
  fill();
  const before = process.memoryUsage().external;
  for (let round = 0; round < 50; round++) fill();
  const grown = process.memoryUsage().external - before;
  assert.ok(grown < 5_000_000, `50 limiters of more than 1 MB each left ${grown} bytes behind`);
});
