// The package itself: its files, its exports, and what it says where it cannot run.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { installed, load, project } from "./installed.mjs";

const folder = project();
const own = join(installed, "node_modules/tidegate");

test("the tarball has exactly the files that are needed", () => {
  const isFile = (name) => statSync(join(own, name)).isFile();
  const ofTheWorker = readdirSync(fileURLToPath(new URL("../../worker", import.meta.url)));
  const scripts = ofTheWorker.filter((name) => name.endsWith(".js") && name !== "index.js").sort();
  const ofMiddleware = [
    "core.js", "express.d.ts", "express.js", "fastify.d.ts", "fastify.js", "fetch.d.ts", "fetch.js", "hono.d.ts", "hono.js",
    "kind.js", "koa.d.ts", "koa.js", "limiting.js", "next.d.ts", "next.js", "node.js", "options.d.ts", "several.js", "store.js", "web.js",
  ];
  const required = ofMiddleware.flatMap((name) => (name.endsWith(".d.ts") ? [name] : [name, `${name}.map`]));
  const entries = ["express-rate-limit", "rate-limiter-flexible", "rolling-rate-limiter", "upstash"].flatMap((name) => [`${name}.d.ts`, `${name}.js`]);
  const dropin = [
    ...entries, "counters.js", "input.js", "ratelimit.js", "rolling.js", "store.js",
    ...["abstract", "counting", "memory", "queue", "result", "timeouts", "wrappers"].map((name) => `flexible/${name}.js`),
    ...[...entries, "counters.js", "flexible.js"].map((name) => `redis/${name}`),
  ];
  const ofDropin = dropin.flatMap((name) => (name.endsWith(".d.ts") ? [name] : [name, `${name}.map`]));
  const files = readdirSync(own, { recursive: true }).filter(isFile).sort();
  assert.deepEqual(files, [
    ...[...ofDropin, "package.json", "flexible/package.json", "redis/package.json"].map((name) => `dist/dropin/${name}`), ...dropin.map((name) => `dropin/${name}`),
    "LICENSE-APACHE", "LICENSE-MIT", "README.md", "THIRD-PARTY.txt", "caller/caller.js", "caller/wrangler.toml",
    "dist/browser.cjs", "dist/browser.cjs.map", "dist/browser.js", "dist/browser.js.map", "dist/edge.js", "dist/edge.js.map",
    "dist/index.d.cts", "dist/policy.d.cts",
    ...[...required, "package.json"].sort().map((name) => `dist/middleware/${name}`), 
    ...["all", "index", "redis", "toml"].flatMap((name) => [`dist/node/${name}.cjs`, `dist/node/${name}.js`]),
    "dist/node/all.cjs.map", "dist/node/all.js.map", "dist/node/command.js", "dist/redis.d.cts",
    "durable-objects.d.ts", "elsewhere.cjs", "dist/durable-objects.d.cts", ...["index.js", "index.js.map", "tidegate.wasm"].map((name) => `dist/durable-objects/${name}`),
    "dist/remote.cjs", "dist/remote.cjs.map", "dist/remote.d.cts", "dist/remote.js", "dist/remote.js.map",
    "dist/slim.cjs", "dist/slim.cjs.map", "dist/slim.d.cts", "dist/slim.js", "dist/slim.js.map", "dist/tidegate.wasm",
    "dist/toml.d.cts", "dist/toml/browser.cjs", "dist/toml/browser.cjs.map", "dist/toml/browser.js", "dist/toml/browser.js.map",
    "dist/toml/edge.js", "dist/toml/edge.js.map", "dist/toml/tidegate.wasm", "dist/toml/workerd.js", "dist/toml/workerd.js.map",
    "dist/worker/build/fields.js", "dist/worker/build/index.js", "dist/worker/build/index_bg.wasm", ...scripts.map((name) => `dist/worker/${name}`),
    "dist/workerd.js", "dist/workerd.js.map",
    "index.d.ts", ...ofMiddleware.map((name) => `middleware/${name}`), "package.json", "policy.d.ts", "redis.d.ts", "remote.d.ts", "slim.d.ts", "template/package.json", "template/policies.toml", "template/worker.js", "template/wrangler.toml", "toml.d.ts",
    "worker.d.ts",
  ].sort());
});

test("no file names a folder of the machine that built it", () => {
  const workspace = fileURLToPath(new URL("../../", import.meta.url));
  const folders = [workspace, join(homedir(), ".cargo"), process.env.CARGO_HOME, join(homedir(), ".rustup")].filter(Boolean);
  for (const name of readdirSync(own, { recursive: true })) {
    if (!statSync(join(own, name)).isFile()) continue;
    const text = readFileSync(join(own, name), "latin1");
    const modules = [...text.matchAll(/"(AGFzbQ[\w+/]{1000,}=*)"/g)].map(([, module]) => Buffer.from(module, "base64").toString("latin1"));
    if (name === "dist/node/all.js") assert.equal(modules.length, 1, "the module of Node is read");
    for (const part of [text, ...modules]) assert.deepEqual(folders.filter((folder) => part.includes(folder)), [], name);
  }
});

test("the package exports the limiter, the reporter and the errors", async () => {
  const { default: preferred, ...named } = await load();
  const expected = ["ArgumentError", "FullError", "Limiter", "LimiterError", "PolicyError", "Reporter", "metering"];
  assert.deepEqual(Object.keys(named), expected);
  assert.deepEqual(Object.values(named).map((exported) => exported.name), expected);
  assert.equal(preferred, named.Limiter);
});

for (const [by, code] of Object.entries({
  import: "import { DurableLimiter, Keys } from 'tidegate/durable-objects'; console.log(DurableLimiter, Keys);",
  require: "const { DurableLimiter } = require('tidegate/durable-objects');",
  "import of the Worker": "import { Keys, Policies, tidegate } from 'tidegate/worker';",
})) {
  test(`an entry for Workers says in Node what it needs, by ${by}`, () => {
    const { status, stderr } = spawnSync(process.execPath, [`--input-type=${by === "require" ? "commonjs" : "module"}`, "-e", code], { cwd: folder, encoding: "utf8" });
    assert.equal(status, 1);
    assert.match(stderr, /^Error: `tidegate\/durable-objects` and `tidegate\/worker` need a Cloudflare Worker, .* Elsewhere use `tidegate`, `tidegate\/redis` or `tidegate\/remote`$/m);
  });
}

test("an error that nobody catches shows no module", () => {
  const file = join(folder, "uncaught.js");
  writeFileSync(file, 'import { Limiter } from "tidegate";\nnew Limiter({ limits: [] });\n');
  const { status, stderr } = spawnSync(process.execPath, [file], { cwd: folder, encoding: "utf8" });
  assert.equal(status, 1);
  assert.match(stderr, /PolicyError: .*limits/);
  assert.ok(stderr.length < 5_000, `${stderr.length} characters`);
});

const readme = readFileSync(join(own, "README.md"), "utf8");

test("the README and the types name the same error codes", () => {
  const types = readFileSync(join(own, "index.d.ts"), "utf8");
  const [, union] = /type ErrorCode =([^;]*);/.exec(types);
  const typed = [...union.matchAll(/"(\w+)"/g)].map(([, code]) => code);
  const [, table] = /\| code \| class \| thrown for \|\n(.*?)\n\n/s.exec(readme);
  const told = [...table.matchAll(/^\| (.*?) \|/gm)].flatMap(([, codes]) => codes.match(/[A-Z_]{2,}/g) ?? []);
  assert.deepEqual(told.sort(), typed.sort());
});
