// Two processes of Node and a native host share one limit on one Redis. One after another dies; what they granted is counted.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";

import { install, link } from "./installed.mjs";
import { startServer } from "./redis.mjs";

const LIMIT = 3_000;
const CALLERS = 16;
const POLICIES = `[policies.shared]\nlimits = [{ algorithm = "token_bucket", capacity = ${LIMIT}, rate = "1/h" }]\n`;

const folder = install();
link(folder, ["ioredis", "redis"]);
const redis = await startServer();
after(() => redis.stop());

/** A process that asks until it is refused, and writes a byte for each grant before it asks again. */
const ASKER = `
import { readFileSync } from "node:fs";
import { RedisLimiter } from "tidegate/redis";
const [kind, path] = process.argv.slice(2);
const client = kind === "ioredis"
  ? new (await import("ioredis")).Redis({ path })
  : await (await import("redis")).createClient({ socket: { path } }).connect();
const limiter = new RedisLimiter(readFileSync("policies.toml", "utf8"), client, { deadline: "10s" });
await Promise.all(Array.from({ length: ${CALLERS} }, async () => {
  for (;;) {
    const { allowed, degraded } = await limiter.check("user:42");
    if (degraded !== undefined) throw new Error(degraded);
    if (!allowed) return;
    process.stdout.write("1"); // a pipe is written at once
  }
}));
process.exit();
`;

const binary = join(process.env.CARGO_TARGET_DIR ?? fileURLToPath(new URL("../../target/", import.meta.url)), "debug/tidegate");

test("three processes share one limit, and the grants of all stay within it when two die", async () => {
  assert.ok(existsSync(binary), `${binary} is missing: run \`cargo build -p tidegate\``);
  writeFileSync(join(folder, "policies.toml"), POLICIES);
  writeFileSync(join(folder, "asker.mjs"), ASKER);
  const granted = { ioredis: 0, redis: 0, host: 0 };
  const total = () => granted.ioredis + granted.redis + granted.host;
  const reached = (least) => new Promise((resolve) => waiting.push({ least, resolve }));
  const waiting = [];
  const grant = (by, count) => {
    granted[by] += count;
    for (const { least, resolve } of waiting) if (total() >= least) resolve();
  };

  const host = spawn(binary, ["serve", "--listen", "127.0.0.1:0", "--policies", "policies.toml", "--redis", `redis+unix://${redis.path}`], {
    cwd: folder, stdio: ["ignore", "pipe", "pipe"], env: { TIDEGATE_TOKEN: "secret" },
  });
  process.on("exit", () => host.kill("SIGKILL"));
  const origin = await new Promise((resolve, reject) => {
    host.on("exit", (code) => reject(new Error(`the host ended with ${code}`)));
    for (const output of [host.stdout, host.stderr]) {
      createInterface({ input: output }).on("line", (line) => {
        const found = /127\.0\.0\.1:\d+/.exec(line);
        if (found !== null) resolve(`http://${found[0]}`);
      });
    }
  });
  const askers = ["ioredis", "redis"].map((kind) => {
    const asker = spawn(process.execPath, ["asker.mjs", kind, redis.path], { cwd: folder, stdio: ["ignore", "pipe", "inherit"] });
    process.on("exit", () => asker.kill("SIGKILL"));
    asker.stdout.on("data", ({ length }) => grant(kind, length));
    return asker;
  });
  await once(askers[0].stdout, "data");
  const byHost = Promise.all(Array.from({ length: CALLERS }, async () => {
    for (;;) {
      const body = JSON.stringify({ policy: "shared", key: "user:42" });
      const headers = { authorization: "Bearer secret", "content-type": "application/json" };
      const answer = await fetch(`${origin}/v1/check`, { method: "POST", headers, body }).then((response) => response.json(), () => undefined);
      if (answer?.allowed !== true) return;
      grant("host", 1);
    }
  }));

  const ends = askers.map((asker) => once(asker, "close"));
  await reached(LIMIT / 3);
  askers[1].kill("SIGKILL");
  await reached(LIMIT / 2);
  host.kill("SIGKILL");
  await Promise.all([byHost, ...ends]);
  assert.equal(askers[0].exitCode, 0);
  assert.ok(Object.values(granted).every((count) => count > 0), JSON.stringify(granted));
  assert.ok(total() <= LIMIT, `${total()} of ${LIMIT}: ${JSON.stringify(granted)}`);
  assert.ok(total() >= LIMIT - 4 * CALLERS, `only grants under way were lost: ${JSON.stringify(granted)}`);
  console.log(`granted ${total()} of ${LIMIT}: ${JSON.stringify(granted)}`);
});
