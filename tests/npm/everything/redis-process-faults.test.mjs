// Processes of Node on one Redis: Redis fails, or one of them is killed or stands still. What all of them grant is counted beside the
// bounds of docs/modes.md.
import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { Redis } from "ioredis";

import { load, project } from "../installed.mjs";
import { start } from "../processes.mjs";
import { announced, startServer } from "../redis.mjs";
import { until } from "../waiting.mjs";

const folder = project();
const { RedisLimiter } = await load("tidegate/redis");

/** How many requests a process asks about at once. */
const AT_ONCE = 4;

/**
 * The workers of `node:cluster`. Each line of the input is for all of them, but "kill N" for the primary. A worker writes its number and a
 * letter for each answer, and "." when it has begun and when it has done what a line says. It waits until the pipe has taken the letter, so
 * that a worker that is killed has said what it was granted, and no worker is ahead of the test by more than the pipe holds. The letters
 * have a pipe of their own, because `ioredis` makes the standard output non-blocking.
 */
const PROGRAM = `
import cluster from "node:cluster";
import { writeSync } from "node:fs";
import { createInterface } from "node:readline";
import { Redis } from "ioredis";
import { RedisLimiter } from "tidegate/redis";

const { WORKERS, POLICY, REDIS, DEADLINE } = process.env;
if (cluster.isPrimary) {
  cluster.setupPrimary({ stdio: ["ignore", "inherit", "inherit", "ipc", 3] });
  for (let count = 0; count < Number(WORKERS); count++) cluster.fork();
  const alive = { ...cluster.workers }; // without those that were killed: a line to one that is about to end fails
  const kill = (number) => {
    alive[number].process.kill("SIGKILL");
    delete alive[number];
  };
  const lines = createInterface({ input: process.stdin });
  lines.on("line", (line) => {
    const [what, number] = line.split(" ");
    if (what === "kill") kill(number);
    else for (const worker of Object.values(alive)) worker.send(line);
  });
  lines.on("close", () => Object.keys(alive).forEach(kill));
} else {
  const { id } = cluster.worker;
  const client = new Redis({ path: REDIS, retryStrategy: () => 20 }).on("error", () => {});
  const limiter = new RedisLimiter(JSON.parse(POLICY), client, { deadline: DEADLINE });
  const say = (letter) => writeSync(4, id + letter);
  const tell = ({ allowed, degraded }) => say(degraded === undefined ? (allowed ? "g" : "r") : allowed ? "d" : "x");
  let isAsking = false;
  let asking = [];
  const ask = async (key) => {
    while (isAsking) {
      const answer = await limiter.check(key);
      tell(answer);
      if (!answer.allowed) await new Promise(setImmediate); // so that a line can come
    }
  };
  const lines = {
    ask(key = "k", number = id) {
      isAsking = Number(number) === id;
      asking = Array.from({ length: ${AT_ONCE} }, () => ask(key));
    },
    async stop() {
      isAsking = false;
      await Promise.all(asking);
    },
    once: async () => tell(await limiter.check("k")),
    look: () => limiter.peek("k"),
    close: () => limiter.close(),
    spin(ms, number) {
      if (Number(number) === id) for (const end = performance.now() + Number(ms); performance.now() < end;);
    },
  };
  process.on("message", async (line) => {
    const [what, ...words] = line.split(" ");
    await lines[what](...words);
    say(".");
  });
  say(".");
}
`;
writeFileSync(join(folder, "program.mjs"), PROGRAM);

/** Starts so many workers under a policy. `seen` has what each has answered. */
async function startWorkers(t, count, policy, deadline = "10s", stored = []) {
  const redis = await startServer(undefined, stored);
  const env = { ...process.env, WORKERS: count, POLICY: JSON.stringify(policy), REDIS: redis.path, DEADLINE: deadline };
  const primary = start(process.execPath, ["program.mjs"], { cwd: folder, env, stdio: ["pipe", "pipe", "pipe", "pipe"] });
  const admin = new Redis({ path: redis.path }).on("error", () => {});
  t.after(async () => {
    primary.stdin.end();
    admin.disconnect();
    await redis.stop();
    if (primary.exitCode === null) await once(primary, "exit");
  });
  const seen = Array.from({ length: count }, () => ({ g: 0, r: 0, d: 0, x: 0, ".": 0 }));
  let rest = "";
  let wake = () => {};
  primary.stdio[3].on("data", (bytes) => {
    const text = rest + bytes;
    for (let at = 0; at + 1 < text.length; at += 2) seen[text[at] - 1][text[at + 1]]++;
    rest = text.length % 2 === 0 ? "" : text.at(-1);
    wake();
  });
  const dead = new Set();
  const alive = () => seen.filter((_, place) => !dead.has(place + 1));
  const when = async (isTrue) => {
    while (!isTrue()) await new Promise((resolve) => { wake = resolve; });
  };
  await when(() => seen.every((own) => own["."] > 0));
  return {
    redis,
    admin,
    alive,
    when,
    seen,
    granted: () => seen.reduce((sum, { g, d }) => sum + g + d, 0),
    /** Gives a line to all workers, and waits until they have done what it says. */
    async all(line) {
      const before = alive().map((own) => own["."]);
      primary.stdin.write(`${line}\n`);
      await when(() => alive().every((own, place) => own["."] > before[place]));
    },
    kill(number) {
      dead.add(number);
      primary.stdin.write(`kill ${number}\n`);
    },
  };
}

const LIMIT = 2_000;
const WORKERS = 8;
const [VICTIM, MOST] = [3, 50];
const window = [{ algorithm: "fixed_window", limit: LIMIT, period: "36500d" }];
const bucket = [{ algorithm: "token_bucket", capacity: LIMIT, rate: "1/30d" }];

const MODES = {
  "strict": { limits: window },
  "remembered": { limits: window, remember: "10m" },
  "lent": { limits: bucket, local: { most: MOST, time: "1h" } },
};

for (const [mode, policy] of Object.entries(MODES)) {
  test(`cluster, ${mode}: one of eight workers is killed under load; the limit is granted, and no more`, async (t) => {
    const { admin, alive, all, granted, kill, seen, when } = await startWorkers(t, WORKERS, policy);
    await all("ask");
    await when(() => seen.some(({ g }) => g >= 40));
    kill(1 + seen.findIndex(({ g }) => g >= 40));
    const sum = () => alive().reduce((sum, { g }) => sum + g, 0);
    const before = sum();
    await when(() => alive().every(({ r }) => r >= AT_ONCE));
    await all("stop");
    await all("close"); // gives units back
    const own = new RedisLimiter(policy, admin, { deadline: "10s" });
    let left = 0;
    while ((await own.check("k")).allowed) left++;
    const total = granted() + left;
    t.diagnostic(`granted ${total} of ${LIMIT}, ${left} of them at the end; by each ${seen.map(({ g }) => g)}`);
    assert.deepEqual(seen.map(({ d, x }) => d + x), seen.map(() => 0), "Redis was there");
    assert.ok(total <= LIMIT, `${total}`);
    const lost = AT_ONCE + (policy.local === undefined ? 0 : MOST);
    assert.ok(total >= LIMIT - lost, `only what the killed process held or had under way is lost: ${total}`);
    assert.ok(sum() > before, `the others go on: ${seen.map(({ g }) => g)}`);
    await own.close();
  });
}

test("cluster, lent from a bucket that refills: eight workers, one killed, grant at most what the limits grant in L + `time`", async (t) => {
  const [capacity, rate, time] = [200, 200, 0.5];
  const policy = { limits: [{ algorithm: "token_bucket", capacity, rate: `${rate}/s` }], local: { most: MOST, time: "500ms" } };
  const { all, granted, kill, when } = await startWorkers(t, WORKERS, policy);
  const began = performance.now();
  await all("ask");
  await when(() => granted() >= capacity);
  kill(VICTIM);
  const before = granted();
  await when(() => granted() >= before + 2 * rate);
  const total = granted();
  const seconds = (performance.now() - began) / 1000;
  const bound = capacity + rate * (seconds + time);
  t.diagnostic(`granted ${total} in ${seconds.toFixed(1)} s, and the bound is ${Math.floor(bound)}`);
  assert.ok(total <= bound, `${total} > ${bound}`);
  await all("stop");
});

/** How Redis goes, how often it then grants the limit by itself, and how it comes back. */
const OUTAGES = {
  "stopped": [1, ({ server }) => void server.kill("SIGSTOP"), ({ server }) => void server.kill("SIGCONT")],
  "killed with its data": [1, killed, ({ path }) => startServer(path, STORED)],
  "killed without its data": [2, killed, ({ path }) => startServer(path)],
};
const STORED = ["--appendonly", "yes", "--appendfsync", "always"];

async function killed({ server }) {
  server.kill("SIGKILL");
  await once(server, "exit");
}

for (const [outage, [times, go, comeBack]] of Object.entries(OUTAGES)) {
  for (const [load, asking, victim] of [["all", [1, 2, 3]], ["one", [1]], ...(times === 1 ? [["all, and one of them is killed in it", [1, 2, 3], VICTIM]] : [])]) {
    test(`outage: three processes under "local", Redis ${outage}, load on ${load}: it costs at most one more limit`, async (t) => {
      const policy = { limits: window, on_error: "local" };
      const { admin, alive, all, granted, kill, redis, seen, when } = await startWorkers(t, 3, policy, "1s", outage === "killed with its data" ? STORED : []);
      for (let round = 0; round < 10; round++) await all("once");
      await all("look"); // so that each has seen what the others were granted
      await announced(admin, 3);
      await all(asking.length === 1 ? `ask k ${asking[0]}` : "ask");
      await when(() => granted() >= LIMIT / 3);
      await go(redis);
      const asks = () => asking.map((number) => seen[number - 1]).filter((own) => alive().includes(own));
      await when(() => asks().every(({ d }) => d > 0));
      if (victim !== undefined) kill(victim);
      await failed(when, asks()); // each has spent its share
      const next = await comeBack(redis);
      if (next !== undefined) t.after(next.stop);
      await refused(when, asks());
      await all("stop");
      const by = (letter) => seen.reduce((sum, own) => sum + own[letter], 0);
      const [total, bound] = [granted(), (times + 1) * LIMIT];
      t.diagnostic(`granted ${total}, and the bound is ${bound}: by Redis ${by("g")}, by shares ${seen.map(({ d }) => d)}`);
      assert.ok(by("d") <= LIMIT && by("g") <= times * LIMIT, `${by("g")} by Redis, ${by("d")} by shares`);
    });
  }
}

/** Waits until each of these workers has been refused anew. */
async function refused(when, workers) {
  const before = workers.map(({ r }) => r);
  await when(() => workers.every(({ r }, place) => r >= before[place] + 2 * AT_ONCE));
}

/** Waits until each worker has an answer that `on_error` decided. */
async function failed(when, workers) {
  const before = workers.map(({ x }) => x);
  await when(() => workers.every(({ x }, place) => x > before[place]));
}

/** Each fault, and how often the limit may be granted. */
const FAULTS = {
  "SCRIPT FLUSH": [1, ({ admin }) => admin.script("FLUSH")],
  "Redis is slow": [1, async ({ admin }) => {
    for (let count = 0; count < 3; count++) await admin.client("PAUSE", 400, "ALL");
  }],
  "Redis stands still": [1, async ({ redis, seen, when }) => {
    redis.server.kill("SIGSTOP");
    await failed(when, seen);
    redis.server.kill("SIGCONT");
  }],
  "an event loop stands still for 2 s": [1, ({ all }) => all("spin 2000 2")],
  "FLUSHALL": [2, ({ admin }) => admin.flushall()],
  "Redis is killed, and starts empty": [2, async ({ redis, seen, when, t }) => {
    redis.server.kill("SIGKILL");
    await failed(when, seen);
    t.after((await startServer(redis.path)).stop);
  }],
};

for (const [mode, options] of Object.entries({ strict: {}, remembered: { remember: "10m" }, lent: { local: { most: MOST, time: "1h" } } })) {
  test(`faults, ${mode}: two processes grant the limit, and once more if Redis has lost it`, async (t) => {
    const workers = await startWorkers(t, 2, { limits: bucket, ...options }, "250ms");
    const { all, granted, seen, when } = workers;
    const failures = () => seen.reduce((sum, { x }) => sum + x, 0);
    for (const [fault, [times, happen]] of Object.entries(FAULTS)) {
      const [before, failedBefore] = [granted(), failures()];
      await all(`ask ${fault.replaceAll(" ", "-")}`);
      await when(() => granted() - before > LIMIT / 4);
      await happen({ ...workers, t });
      await refused(when, seen);
      await all("stop");
      const [total, bound, failing] = [granted() - before, times * LIMIT, failures() - failedBefore];
      t.diagnostic(`${fault}: granted ${total}, and the bound is ${bound}; ${failing} requests failed`);
      assert.ok(total <= bound, `${fault}: ${total} > ${bound}`);
      const lost = failing === 0 ? 0 : 2 * (AT_ONCE + MOST);
      assert.ok(total >= LIMIT - lost - 2 * MOST, `${fault}: ${total}`);
      if (times > 1) assert.ok(total > 1.1 * LIMIT, `${fault}: Redis lost what was granted: ${total}`);
    }
  });
}
