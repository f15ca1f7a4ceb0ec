// Two processes of Node and a native host share one limit on one Redis. Two of them are killed; what all have granted is counted.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";

import { startHost } from "../host.mjs";
import { project } from "../installed.mjs";
import { start } from "../processes.mjs";
import { startServer } from "../redis.mjs";

const LIMIT = 3_000;
/** How many requests a process is given at once. */
const AT_ONCE = 16;
const POLICIES = `[policies.shared]\nlimits = [{ algorithm = "token_bucket", capacity = ${LIMIT}, rate = "1/h" }]\n`;

const folder = project();
writeFileSync(join(folder, "policies.toml"), POLICIES);
const redis = await startServer();
after(() => redis.stop());

/** A process that decides on a request for each byte of its input, and writes a byte for each answer. */
const ASKER = `
import { readFileSync } from "node:fs";
import { RedisLimiter } from "tidegate/redis";
import { toml } from "tidegate/toml";
const [kind, path] = process.argv.slice(2);
const client = kind === "ioredis"
  ? new (await import("ioredis")).Redis({ path })
  : await (await import("redis")).createClient({ socket: { path } }).connect();
const limiter = new RedisLimiter(toml(readFileSync("policies.toml", "utf8")), client, { deadline: "10s" });
process.stdin.on("data", (bytes) => {
  for (const _ of bytes) {
    limiter.check("user:42").then(({ allowed, degraded }) => process.stdout.write(degraded ? "?" : allowed ? "1" : "0"));
  }
});
`;
writeFileSync(join(folder, "asker.mjs"), ASKER);

/** A process of Node that asks by this client. `ask` returns the answers to some requests; fewer once it is killed. */
function startNode(t, kind) {
  const asker = start(process.execPath, ["asker.mjs", kind, redis.path], { cwd: folder, stdio: ["pipe", "pipe", "pipe"] });
  const kill = () => asker.kill("SIGKILL");
  t.after(kill);
  asker.stdin.on("error", () => {}); // it may be killed
  const answered = { text: "", isClosed: false, wake: () => {} };
  asker.stdout.on("data", (bytes) => {
    answered.text += bytes;
    answered.wake();
  });
  asker.on("close", () => {
    answered.isClosed = true;
    answered.wake();
  });
  const ask = async (count) => {
    asker.stdin.write("?".repeat(count));
    while (answered.text.length < count && !answered.isClosed) await new Promise((resolve) => { answered.wake = resolve; });
    const own = answered.text.slice(0, count);
    answered.text = answered.text.slice(count);
    return own;
  };
  return { ask, kill };
}

/** A native host, which answers in the same way. */
async function askHost(t) {
  const { url, host, stop } = await startHost(POLICIES, { options: ["--redis", `redis+unix://${redis.path}`, "--redis-deadline", "10000"] });
  t.after(stop);
  const body = JSON.stringify({ policy: "shared", key: "user:42" });
  const headers = { authorization: "Bearer secret", "content-type": "application/json" };
  const check = async () => {
    const response = await fetch(`${url}/v1/check`, { method: "POST", headers, body });
    const { allowed, degraded } = await response.json();
    return degraded ? "?" : allowed ? "1" : "0";
  };
  const ask = async (count) => (await Promise.all(Array.from({ length: count }, () => check().catch(() => "")))).join("");
  return { ask, kill: () => host.kill("SIGKILL") };
}

test("three processes share one limit, and the grants of all stay within it when two are killed", async (t) => {
  const alive = { ioredis: startNode(t, "ioredis"), redis: startNode(t, "redis"), host: await askHost(t) };
  const granted = { ioredis: 0, redis: 0, host: 0 };
  const killed = { 30: "redis", 50: "host" };
  for (let round = 0, refused = 0; refused < AT_ONCE; round++) {
    assert.ok(round < LIMIT / AT_ONCE + 2, JSON.stringify(granted));
    const asked = Object.entries(alive).map(([name, { ask }]) => ask(AT_ONCE).then((answers) => [name, answers]));
    if (round in killed) {
      alive[killed[round]].kill(); // with requests under way
      delete alive[killed[round]];
    }
    for (const [name, answers] of await Promise.all(asked)) {
      granted[name] += answers.split("1").length - 1;
      assert.ok(!answers.includes("?"), `${name} could not ask Redis`);
      if (name === "ioredis") refused = answers.split("0").length - 1;
    }
  }
  const total = granted.ioredis + granted.redis + granted.host;
  assert.ok(granted.redis >= 30 * AT_ONCE && granted.host >= 50 * AT_ONCE, JSON.stringify(granted));
  assert.ok(total <= LIMIT, `${total} of ${LIMIT}: ${JSON.stringify(granted)}`);
  assert.ok(total >= LIMIT - 2 * AT_ONCE, `only grants under way were lost: ${JSON.stringify(granted)}`);
});
