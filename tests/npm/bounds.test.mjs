// The bound in bytes: states of any size stay within it, and memory that runs out is TABLE_FULL.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { load, project } from "./installed.mjs";

const folder = project();
const { Limiter } = await load();

const NOW = 1_700_000_000_000_000;
const MIB = 1 << 20;

/** Policies with large states. A bound on the number of keys would let them take far more memory. */
const LARGE = {
  "concurrency of 4096": [{ algorithm: "concurrency", capacity: 4_096, time_to_live: "1h" }],
  "concurrency of 100": [{ algorithm: "concurrency", capacity: 100, time_to_live: "1h" }],
  "sliding_log of 600": [{ algorithm: "sliding_log", rates: ["600/h"] }],
  "budget": [
    { algorithm: "token_bucket", capacity: 5_000, rate: "1/h" }, { algorithm: "budget", most: 10, time: "1h" },
  ],
};

const full = (error) => {
  if (error.code === "TABLE_FULL" && error.name === "FullError") return true;
  throw error;
};

/** Asks for new keys until one is refused, and returns how many there were. */
function fill(limiter, limits, most = 4_000_000) {
  const { algorithm } = limits.at(-1);
  for (let count = 0; count < most; count++) {
    const key = `key-${count}`;
    try {
      const answer = algorithm === "concurrency" ? limiter.acquire(key, { lease: "one", now: NOW })
        : algorithm === "budget" ? limiter.budget(key, "one", { wants: 5, now: NOW })
        : limiter.check(key, { cost: 1, now: NOW });
      assert.equal(answer.allowed, true);
    } catch (error) {
      full(error);
      return count;
    }
  }
  throw new Error(`${most} keys, and no end`);
}

/** Checks that a full limiter refuses new keys and still decides on known keys. */
function staysRight(limiter, limits, count) {
  assert.equal(limiter.size, count);
  assert.ok(count > 0);
  const isLease = limits[0].algorithm === "concurrency";
  const before = limiter.peek("key-0", { now: NOW }).remaining;
  for (let round = 0; round < 3; round++) {
    if (isLease) assert.equal(limiter.acquire("key-0", { lease: `more-${round}`, now: NOW }).remaining, before - 1 - round);
    else assert.equal(limiter.check("key-0", { cost: 1, now: NOW }).remaining, before - 1 - round);
    const refused = `key-${count}`; // another part of a large table may have room
    const ask = isLease ? () => limiter.acquire(refused, { now: NOW }) : () => limiter.check(refused, { cost: 1, now: NOW });
    assert.throws(ask, full);
  }
  assert.equal(limiter.size, count);
}

for (const [name, limits] of Object.entries(LARGE)) {
  for (const maxBytes of [8 * MIB, undefined]) {
    test(`${name}: a limiter stays within ${maxBytes ?? "the default"} bytes`, () => {
      const before = process.memoryUsage().external;
      const limiter = new Limiter({ limits }, { maxBytes });
      const count = fill(limiter, limits);
      staysRight(limiter, limits, count);
      const grown = process.memoryUsage().external - before;
      assert.ok(grown < 1.5 * (maxBytes ?? 256 * MIB) + 8 * MIB, `${grown} bytes for ${count} keys`);
      limiter.free();
    });
  }
}

test("the default bound has room for 900,000 short keys", () => {
  const limiter = new Limiter({ limits: [{ algorithm: "token_bucket", capacity: 1, rate: "1/h" }] });
  for (let count = 0; count < 900_000; count++) limiter.check(`user:${count}`, { cost: 1, now: NOW });
  assert.equal(limiter.size, 900_000);
  limiter.free();
});

test("long keys count with their length", () => {
  const limits = [{ algorithm: "token_bucket", capacity: 1, rate: "1/h" }];
  const fillBy = (prefix) => {
    const limiter = new Limiter({ limits }, { maxBytes: MIB });
    let count = 0;
    assert.throws(() => { for (;; count++) limiter.check(`${prefix}${count}`, { cost: 1, now: NOW }); }, full);
    limiter.free();
    return count;
  };
  const [short, long] = [fillBy(""), fillBy("x".repeat(500))];
  assert.ok(short >= 3_500 && short <= 7_200, `${short} short keys`);
  assert.ok(long > 1_000 && long < 2_000, `${long} long keys`);
});

test("a bound that is too small for one key of the policy is refused", () => {
  for (const [limits, least] of Object.values(LARGE).map((limits) => [limits, /from \d+ to 2147483648, found 1000$/])) {
    assert.throws(() => new Limiter({ limits }, { maxBytes: 1_000 }),
      { name: "ArgumentError", code: "INVALID_OPTION", message: least });
  }
  const [small, large] = [[{ algorithm: "fixed_window", limit: 5, period: "1h" }], LARGE["concurrency of 4096"]];
  assert.equal(new Limiter({ limits: small }, { maxBytes: 64 * 1024 }).check("a", { cost: 1, now: NOW }).allowed, true);
  assert.throws(() => new Limiter({ limits: large }, { maxBytes: 64 * 1024 }), { code: "INVALID_OPTION" });
});

/** Runs a script in which the module's memory cannot grow beyond this many pages of 64 KiB. */
function withMemoryOf(pages, script) {
  const file = join(folder, "limited.mjs");
  writeFileSync(file, `
    import { Limiter } from "tidegate";
    const NOW = ${NOW};
    const codes = {};
    const tried = (call) => {
      try { return call(); } catch (error) {
        if (error.code === undefined) throw error; // a trap
        codes[error.code] = (codes[error.code] ?? 0) + 1;
      }
    };
    ${script}
    console.log(JSON.stringify(codes));`);
  const printed = execFileSync(process.execPath, [`--wasm-max-mem-pages=${pages}`, file], { cwd: folder, encoding: "utf8" });
  return JSON.parse(printed);
}

test("a limiter whose memory runs out before the bound is full and does not trap", () => {
  for (const [name, limits] of Object.entries(LARGE)) {
    const { algorithm } = limits.at(-1);
    const codes = withMemoryOf(512, `
      const limits = ${JSON.stringify(limits)};
      const limiter = new Limiter({ limits }, { maxBytes: 2 ** 31 });
      const ask = (limiter, key, lease) => tried(() =>
        ${algorithm === "concurrency" ? "limiter.acquire(key, { lease, now: NOW })"
          : algorithm === "budget" ? "limiter.budget(key, lease, { wants: 5, now: NOW })" : "limiter.check(key, { cost: 1, now: NOW })"});
      for (let key = 0; codes.TABLE_FULL === undefined; key++) ask(limiter, "key-" + key, "one");
      // and from then on: known keys and new ones, long keys, other limiters
      for (let round = 0; round < 200; round++) {
        if (ask(limiter, "key-0", "lease-" + round) === undefined) throw new Error("a known key");
        ask(limiter, "x".repeat(500) + round, "one");
        const other = tried(() => new Limiter({ limits: [{ algorithm: "fixed_window", limit: 5, period: "1h" }] }));
        if (other) ask(other, "a", "one");
      }
      codes.keys = limiter.size;`);
    assert.ok(codes.keys > 50, name);
    assert.ok(codes.TABLE_FULL > 200, name);
  }
});

test("no text makes the module trap, however long it is", () => {
  const codes = withMemoryOf(256, `
    const limiter = new Limiter({ limits: [{ algorithm: "concurrency", capacity: 5, time_to_live: "1h" }] });
    const long = "x".repeat(100_000_000);
    tried(() => new Limiter(long));
    tried(() => new Limiter({ limits: [], ["a" + long]: 1 }));
    tried(() => new Limiter({ limits: [] }, { policy: long }));
    tried(() => limiter.acquire("a", { lease: long, now: NOW }));
    tried(() => limiter.decide("a", { class: long, now: NOW }));
    tried(() => limiter.renew("a", long, { now: NOW }));
    tried(() => limiter.check(long, { cost: 1, now: NOW }));
    if (!limiter.acquire("a", { now: NOW }).allowed) throw new Error();`);
  assert.deepEqual(codes, { INVALID_POLICY: 2, INVALID_OPTION: 1, INVALID_REQUEST: 3, INVALID_KEY: 1 });
});
