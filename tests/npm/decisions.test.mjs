// Which requests are granted and which are refused, to the microsecond.
import assert from "node:assert/strict";
import { test } from "node:test";

import { load } from "./installed.mjs";

const { Limiter } = await load();
const { toml } = await load("tidegate/toml");

const NOW = 1_700_000_000_000_000;
const TWO_THEN_THREE_PER_SECOND = {
  limits: [{ algorithm: "token_bucket", capacity: 2, rate: "3/s" }],
};

test("a grant says how much is left, and a refusal how long to wait", () => {
  const limiter = new Limiter(TWO_THEN_THREE_PER_SECOND);
  assert.deepEqual(limiter.check("a", { cost: 1, now: NOW }), {
    allowed: true, limit: 2, remaining: 1, retryAfterUs: 0, resetAfterUs: 333_334,
  });
  assert.deepEqual(limiter.check("a", { cost: 1, now: NOW }), {
    allowed: true, limit: 2, remaining: 0, retryAfterUs: 0, resetAfterUs: 666_667,
  });
  assert.deepEqual(limiter.check("a", { cost: 1, now: NOW }), {
    allowed: false, limit: 2, remaining: 0, retryAfterUs: 333_334, resetAfterUs: 666_667,
  });
});

test("a request is refused a microsecond before retryAfterUs and granted at it", () => {
  for (const algorithm of [
    { algorithm: "token_bucket", capacity: 2, rate: "3/s" },
    { algorithm: "fixed_window", limit: 2, period: "7s" },
    { algorithm: "sliding_window", limit: 2, period: "7s", segments: 7 },
  ]) {
    const limiter = new Limiter({ limits: [algorithm] });
    limiter.check("a", { cost: 2, now: NOW });
    const { allowed, retryAfterUs } = limiter.check("a", { cost: 1, now: NOW });
    assert.equal(allowed, false);
    assert.equal(limiter.check("a", { cost: 1, now: NOW + retryAfterUs - 1 }).allowed, false, algorithm.algorithm);
    assert.equal(limiter.check("a", { cost: 1, now: NOW + retryAfterUs }).allowed, true, algorithm.algorithm);
  }
});

test("keys are independent, whatever characters they have", () => {
  const limiter = new Limiter(TWO_THEN_THREE_PER_SECOND);
  const keys = ["a", "b", "ab", "A", "é", "e\u0301", "日本", "🦀", "\0", "a\0", "x".repeat(512)];
  for (const key of keys) {
    assert.equal(limiter.check(key, { cost: 2, now: NOW }).remaining, 0);
  }
  for (const key of keys) {
    assert.equal(limiter.check(key, { cost: 1, now: NOW }).allowed, false, key);
  }
  assert.equal(limiter.size, keys.length);
});

test("limiters are independent", () => {
  const [one, other] = [new Limiter(TWO_THEN_THREE_PER_SECOND), new Limiter(TWO_THEN_THREE_PER_SECOND)];
  one.check("a", { cost: 2, now: NOW });
  assert.equal(one.check("a", { cost: 1, now: NOW }).allowed, false);
  assert.equal(other.check("a", { cost: 1, now: NOW }).allowed, true);
});

test("a peek changes nothing, as does a cost of 0", () => {
  const limiter = new Limiter(TWO_THEN_THREE_PER_SECOND);
  const fresh = { allowed: true, limit: 2, remaining: 2, retryAfterUs: 0, resetAfterUs: 0 };
  const { atUs, limits, ...looked } = limiter.peek("a", { now: NOW });
  assert.deepEqual(looked, fresh);
  assert.deepEqual(limiter.check("a", { cost: 0, now: NOW }), fresh);
  assert.equal(limiter.size, 0);
  limiter.check("a", { cost: 1, now: NOW });
  assert.equal(limiter.peek("a", { now: NOW }).remaining, 1);
  assert.equal(limiter.peek("a", { now: NOW }).remaining, 1);
});

test("a check without a cost takes the policy's cost", () => {
  const limits = [{ algorithm: "fixed_window", limit: 10, period: "1h" }];
  const remaining = (cost) => new Limiter({ limits, cost }).check("a", { now: NOW }).remaining;
  assert.equal(remaining(undefined), 9);
  assert.equal(remaining(4), 6);
  assert.equal(remaining({ header: "x-cost" }), 9);
  assert.equal(remaining({ header: "x-cost", default: 3 }), 7);
});

test("a call without a time reads the clock, in microseconds", (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: NOW / 1000 });
  const limiter = new Limiter(TWO_THEN_THREE_PER_SECOND);
  limiter.check("a", { cost: 2 });
  assert.equal(limiter.check("a", { cost: 1, now: NOW }).retryAfterUs, 333_334);
  t.mock.timers.tick(333);
  assert.equal(limiter.check("a").retryAfterUs, 334);
  t.mock.timers.tick(1);
  assert.equal(limiter.peek("a").remaining, 1);
  assert.equal(limiter.check("a").allowed, true);
});

test("the first and the last time are valid", () => {
  const limiter = new Limiter(TWO_THEN_THREE_PER_SECOND);
  for (const now of [0, -0, 1, Number.MAX_SAFE_INTEGER, 0]) {
    assert.equal(typeof limiter.check("a", { cost: 1, now }).allowed, "boolean");
  }
});

test("the largest quantities reach WebAssembly and come back unchanged", () => {
  const most = Number.MAX_SAFE_INTEGER;
  const limiter = new Limiter({ limits: [{ algorithm: "fixed_window", limit: most, period: "1d" }] });
  assert.equal(limiter.check("a", { cost: 1, now: NOW }).remaining, most - 1);
  assert.equal(limiter.check("a", { cost: most - 1, now: NOW }).remaining, 0);
  assert.equal(limiter.check("a", { cost: 1, now: NOW }).limit, most);
});

test("a decision is a plain object of plain numbers", () => {
  const decision = new Limiter(TWO_THEN_THREE_PER_SECOND).check("a", { cost: 1, now: NOW });
  assert.equal(Object.getPrototypeOf(decision), Object.prototype);
  assert.equal(JSON.stringify(decision),
    '{"allowed":true,"limit":2,"remaining":1,"retryAfterUs":0,"resetAfterUs":333334}');
});

test("object, JSON, TOML and policy file mean the same", () => {
  const text = "limits = [{ algorithm = 'token_bucket', capacity = 2, rate = '3/s' }]";
  const file = { policies: { only: TWO_THEN_THREE_PER_SECOND } };
  const two = `auth = "none"\n[policies.a]\n${text}\n[policies.b]\n${text.replace("2", "7")}`;
  for (const [policy, options] of [
    [TWO_THEN_THREE_PER_SECOND],
    [JSON.stringify(TWO_THEN_THREE_PER_SECOND)],
    [`\ufeff ${JSON.stringify(file)}`],
    [toml(text)],
    [toml(`\ufeff${text}`)],
    [file],
    [file, { policy: "only" }],
    [JSON.stringify(file)],
    [toml(`[policies.only]\n${text}`)],
    [toml(two), { policy: "a" }],
  ]) {
    const limiter = new Limiter(policy, options);
    limiter.check("a", { cost: 2, now: NOW });
    assert.equal(limiter.check("a", { cost: 1, now: NOW }).retryAfterUs, 333_334, JSON.stringify(policy));
  }
  assert.equal(new Limiter(toml(two), { policy: "b" }).peek("a", { now: NOW }).limit, 7);
});
