// These tests make calls that bring limits of their own.
import assert from "node:assert/strict";
import { test } from "node:test";

import { load } from "./installed.mjs";

const { Limiter } = await load();

const SECOND = 1_000_000;
const now = 1_700_000_000_000_000;

const window = (limit, others = {}) => ({ algorithm: "fixed_window", limit, period: "1h", ...others });
const five = (others = {}) => new Limiter({ limits: [window(5)], ...others });

test("limits of a call hold for the call, and a count goes on under another number", () => {
  const limiter = five({ deny: ["bad"] });
  const under = (limit) => ({ limits: [window(limit)], now });
  assert.equal(limiter.check("a", { cost: 4, now }).remaining, 1);
  assert.equal(limiter.check("a", { ...under(9), cost: 3 }).remaining, 2);
  assert.equal(limiter.check("a", { ...under(9), cost: 3 }).allowed, false);
  assert.equal(limiter.check("a", { now }).allowed, false);
  assert.deepEqual(limiter.decide("a", under(8)).limits.map(({ limit, remaining }) => [limit, remaining]), [[8, 0]]);
  assert.equal(limiter.peek("a", under(10)).remaining, 2);
  assert.equal(limiter.explain("a", under(8)).allowed, false);
  assert.equal(limiter.reset("a", under(8)).remaining, 8);
  assert.equal(limiter.check("bad", under(9)).allowed, false);
  const grant = limiter.decide("b", { ...under(9), cost: 7 });
  assert.equal(grant.refund(7, { now }).remaining, 9);
  const names = limiter.decide("c", { limits: [window(3, { name: "x" }), window(4, { name: "y", depth: 1 })], now }).limits;
  assert.deepEqual(names.map(({ name }) => name), ["y", "x"]);
  for (const [limits, message] of [
    [5, /^`limits`: expected an array, found a number$/], [[], /^`limits`: expected 1 to 16 limits, found 0$|1 to 16/],
    [[{ algorithm: "none" }], /^`limits\[0\]\.algorithm`: expected one of/], [[window(NaN)], /^`limits\[0\]\.limit`: .*NaN/],
    [[window(5, { name: "x".repeat(5_000) })], /expected at most 4096 bytes/], [{ 0: window(5), length: 1 }, /expected an array/],
  ]) {
    assert.throws(() => limiter.check("a", { limits, now }), { name: "ArgumentError", code: "INVALID_LIMITS", message });
  }
});

test("in turns with a loose limit a strict one grants what it grants alone", () => {
  const loose = [window(100, { period: "1s" })];
  for (const [strict, alone] of [
    [[window(5, { period: "15m" })], 5],
    [[{ algorithm: "token_bucket", capacity: 5, rate: "5/15m" }], 8],
    [[{ algorithm: "sliding_window", limit: 5, period: "15m" }], 5],
  ]) {
    for (const [own, ofCalls] of [[loose, strict], [strict, loose]]) {
      const limiter = new Limiter({ limits: own });
      const granted = new Map([[own, 0], [ofCalls, 0]]);
      for (let second = 0; second < 600; second++) {
        const now = (1_888_889 * 900 + second) * 1_000_000; // a window of 15 minutes begins
        granted.set(own, granted.get(own) + limiter.check("k", { now }).allowed);
        granted.set(ofCalls, granted.get(ofCalls) + limiter.check("k", { now, limits: ofCalls }).allowed);
      }
      assert.deepEqual([granted.get(strict), granted.get(loose)], [alone, 600], JSON.stringify(strict));
    }
  }
});

test("a restored or emptied limiter goes on with limits of calls", () => {
  const both = [window(5), window(3, { name: "x", period: "1d" })];
  const limiter = new Limiter({ limits: both.map((limit, place) => ({ name: `l${place}`, ...limit })) });
  const named = (limit) => ({ limits: [window(limit, { name: "l0" })], now });
  assert.equal(limiter.check("a", { cost: 2, now }).remaining, 1);
  assert.equal(limiter.size, 1);
  assert.equal(limiter.check("a", named(9)).remaining, 6);
  const restored = new Limiter({ limits: both.map((limit, place) => ({ name: `l${place}`, ...limit })) });
  restored.restore(limiter.dump());
  assert.equal(restored.peek("a", named(9)).remaining, 6);
  assert.equal(restored.check("a", { now }).remaining, 0);
  restored.resetAll();
  assert.equal(restored.check("a", { cost: 3, now }).remaining, 0);
  assert.equal(restored.size, 1);
  assert.equal(restored.check("a", named(9)).remaining, 5);
});

test("limits of a call that fails hold for no other call", () => {
  const limiter = five();
  const options = { limits: [window(3)], now };
  const calls = ["check", "decide", "peek", "explain", "reset", "acquire"].map((name) => [name, "\ud800", options]);
  calls.push(["check", "", options], ["check", "a", { ...options, cost: 9 }], ["acquire", "a", options], ["explain", "a", { ...options, class: "no" }]);
  for (const [name, key, given] of calls) {
    assert.throws(() => limiter[name](key, given), ({ code }) => code !== undefined, name);
    assert.equal(limiter.check("other", { cost: 0, now }).limit, 5, name);
  }
});

test("an error about the limits of a call names `limits`", () => {
  const limiter = five();
  const circular = [window(5)];
  circular[0].self = circular;
  let deep = window(5);
  for (let level = 0; level < 40; level++) deep = { deep };
  for (const [limits, message] of [
    [circular, /^`limits`: expected at most 32 levels, found more: it may be circular$/],
    [[deep], /^`limits`: expected at most 32 levels/],
    [[], "`limits`: expected 1 to 16 limits, found 0"],
    [Array(17).fill(window(5)), "`limits`: expected 1 to 16 limits, found 17"],
    [[window(5, { name: "\ud800" })], "`limits[0].name`: expected well-formed Unicode, found a lone surrogate"],
    [[window(5, { "\ud800": 1 })], "`limits[0]`: expected well-formed Unicode, found a lone surrogate"],
    [[window(3n)], /^`limits\[0\]\.limit`: .*found a bigint/],
  ]) {
    assert.throws(() => limiter.check("a", { limits, now }), { name: "ArgumentError", code: "INVALID_LIMITS", message });
  }
});

test("the number of different limits of calls is bounded", () => {
  const limiter = five();
  const call = (limit, at = now) => limiter.check(`k${limit}`, { limits: [window(limit)], now: at });
  for (let limit = 1; limit <= 1_000; limit++) call(limit);
  assert.throws(() => call(1_001), { name: "FullError", code: "TOO_MANY_LIMITS" });
  assert.equal(call(1_000).remaining, 998);
  assert.equal(call(1_001, now + 3_600 * SECOND).remaining, 1_000, "the others have expired");
});
