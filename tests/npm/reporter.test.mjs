// How a process refuses the requests of one account, and how it reports the load.
import assert from "node:assert/strict";
import { test } from "node:test";

import { load } from "./installed.mjs";

const { Limiter, Reporter } = await load();

const PART = 1_700_000_004_000_000; // a part of 6 s begins
const SECOND = 1_000_000;

test("the cap refuses load with which the process alone exceeds the limit, until the part ends", () => {
  const reporter = new Reporter({ limit: "1/s" });
  assert.deepEqual(reporter.decide(6, PART), { admitted: true });
  assert.deepEqual(reporter.decide(1, PART + SECOND),
    { admitted: false, reason: "capped", retryAfterUs: 5 * SECOND });
  assert.deepEqual(reporter.decide(0, PART + 6 * SECOND - 1), { admitted: true }, "a peek takes nothing");
  assert.equal(reporter.decide(1, PART + 6 * SECOND - 1).admitted, false);
  assert.equal(reporter.decide(1, PART + 6 * SECOND).admitted, true);
  assert.throws(() => reporter.decide(7, PART), { name: "ArgumentError", code: "COST_EXCEEDS_CAPACITY" });

  const uncapped = new Reporter({ limit: "1/s", localCap: false });
  assert.equal(uncapped.decide(1_000, PART).admitted, true);
});

test("offered load is reported once for its part, at most every 2 s", () => {
  const reporter = new Reporter({ limit: "1/s" });
  assert.deepEqual(reporter.dueReports(PART), []);
  reporter.decide(6, PART + 5 * SECOND);
  reporter.decide(1, PART + 5 * SECOND);
  reporter.decide(2, PART + 6 * SECOND);
  assert.deepEqual(reporter.dueReports(PART + 6 * SECOND), [
    { offeredAtUs: PART + 6 * SECOND, admitted: 2, suppressed: 0 },
    { offeredAtUs: PART, admitted: 6, suppressed: 1 },
  ]);
  reporter.decide(1, PART + 7 * SECOND);
  assert.deepEqual(reporter.dueReports(PART + 8 * SECOND - 1), []);
  assert.deepEqual(reporter.dueReports(PART + 8 * SECOND),
    [{ offeredAtUs: PART + 6 * SECOND, admitted: 1, suppressed: 0 }]);
});

test("the factor holds for 24 s", () => {
  const reporter = new Reporter({ limit: "1000/s" });
  const passed = (at) => (
    Array.from({ length: 400 }, () => reporter.decide(1, at)).filter(({ admitted }) => admitted).length
  );
  assert.equal(passed(PART), 400);
  reporter.apply(1, PART);
  assert.equal(passed(PART), 0);
  assert.deepEqual(reporter.decide(1, PART), { admitted: false, reason: "suppressed" });
  reporter.apply(0.5, PART);
  const half = passed(PART + 24 * SECOND - 1);
  assert.ok(half > 100 && half < 300, `${half} of 400 passed`);
  assert.equal(passed(PART + 24 * SECOND), 400);
  reporter.apply(0.3, PART + 24 * SECOND); // not a multiple of 2^-32, so it is rounded down to one
  reporter.apply(0, PART + 24 * SECOND);
  assert.equal(passed(PART + 24 * SECOND), 400);
});

test("reporters and a limiter hold an account at its limit", () => {
  const master = new Limiter({ limits: [{ algorithm: "suppression", rate: "100/s" }] });
  const reporters = [0, 1].map(() => new Reporter({ limit: "100/s" }));
  const admitted = [];
  // each reporter offers as much as the account's limit
  for (let tick = 0; tick < 12_000; tick++) {
    const now = PART + tick * 10_000;
    for (const reporter of reporters) {
      admitted.push(reporter.decide(1, now).admitted ? now : 0);
      for (const report of reporter.dueReports(now)) {
        reporter.apply(master.report("account", { ...report, now }).factor, now);
      }
    }
  }
  const settled = admitted.filter((at) => at >= PART + 60 * SECOND).length / 60;
  assert.ok(settled > 90 && settled < 110, `${settled} a second passed, of 200 offered and 100 allowed`);
});

test("a reporter's arguments must have known names, the right types and valid values", () => {
  const refuses = (call, name, code, message) => assert.throws(call, { name, code, message });
  for (const [options, message] of [
    [undefined, "`options`: expected an object, found undefined"],
    [{}, "`options.limit`: expected a string, found undefined"],
    [{ limit: 5 }, "`options.limit`: expected a string, found a number"],
    [{ limit: "1/s", localCap: 1 }, "`options.localCap`: expected a boolean, found a number"],
    [{ limit: "1/s", cap: true }, "`options`: expected `limit` or `localCap`, found `cap`"],
  ]) {
    refuses(() => new Reporter(options), "ArgumentError", "INVALID_OPTION", message);
  }
  for (const limit of ["", "fast", "1", "0/s", '1/s" }], "x": [{ "y": "']) {
    refuses(() => new Reporter({ limit }), "ArgumentError", "INVALID_OPTION", /^`options\.limit`: expected .*; found ".*"$/);
  }
  const reporter = new Reporter({ limit: "1/s" });
  for (const value of [NaN, -1, 1.5, 2 ** 53]) {
    refuses(() => reporter.decide(value, PART), "ArgumentError", "INVALID_COST", /^`units`: expected/);
    refuses(() => reporter.decide(1, value), "ArgumentError", "INVALID_NOW", /^`now`: expected/);
    refuses(() => reporter.dueReports(value), "ArgumentError", "INVALID_NOW", /^`now`: expected/);
    refuses(() => reporter.apply(0, value), "ArgumentError", "INVALID_NOW", /^`now`: expected/);
  }
  for (const factor of [NaN, -0.1, 1.1, Infinity]) {
    refuses(() => reporter.apply(factor, PART), "ArgumentError", "INVALID_REQUEST", /expected a number from 0 to 1, found /);
  }
  for (const value of [null, "1", 1n]) {
    refuses(() => reporter.decide(value, PART), "ArgumentError", "INVALID_COST", /^`units`: expected/);
    refuses(() => reporter.decide(1, value), "ArgumentError", "INVALID_NOW", /^`now`: expected/);
    refuses(() => reporter.dueReports(value), "ArgumentError", "INVALID_NOW", /^`now`: expected/);
    refuses(() => reporter.apply(value, PART), "ArgumentError", "INVALID_REQUEST", /^`factor`: expected/);
    refuses(() => reporter.apply(0, value), "ArgumentError", "INVALID_NOW", /^`now`: expected/);
  }
  assert.deepEqual(reporter.dueReports(PART), [], "nothing was counted");
  assert.equal(reporter.decide(6, PART).admitted, true);
});

test("every call of a freed reporter throws", () => {
  const reporter = new Reporter({ limit: "1/s" });
  reporter.free();
  reporter.free();
  for (const call of [() => reporter.decide(), () => reporter.dueReports(), () => reporter.apply(0)]) {
    assert.throws(call, { name: "LimiterError", code: "FREED" });
  }
});

test("a call without a time reads the clock", (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: PART / 1000 });
  const reporter = new Reporter({ limit: "1/s" });
  reporter.decide();
  assert.deepEqual(reporter.dueReports(), [{ offeredAtUs: PART, admitted: 1, suppressed: 0 }]);
  reporter.apply(1);
  t.mock.timers.tick(24_000);
  assert.equal(reporter.decide().admitted, true);
});
