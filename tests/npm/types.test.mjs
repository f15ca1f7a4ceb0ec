// The types: every documented use compiles, mistakes do not, and an app that is written for other libraries compiles with our classes.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { project } from "./installed.mjs";

const tsc = fileURLToPath(new URL("../../node_modules/typescript/bin/tsc", import.meta.url));
const folder = project();
const read = (name) => readFileSync(new URL(name, import.meta.url), "utf8");
const app = read("dropin-app.ts");
const onRedis = read("dropin-redis-app.ts");

/** The app with our classes. The middleware of express-rate-limit stays. */
const changed = app
  .replace('{ MemoryStore } from "express-rate-limit"', '{ MemoryStore } from "tidegate/express-rate-limit"')
  .replaceAll(/"(rate-limiter-flexible|rolling-rate-limiter)"/g, '"tidegate/$1"')
  .replaceAll('"@upstash/ratelimit";', '"tidegate/upstash";');

/** The app on Redis with our classes. The stores take the client itself. */
const changedOnRedis = onRedis
  .replace("sendCommand: (command: string, ...words: string[]) => client.call(command, ...words) as Promise<RedisReply>", "client")
  .replace("import type { RedisReply } from \"rate-limit-redis\";\n", "")
  .replaceAll('"rate-limit-redis"', '"tidegate/express-rate-limit/redis"')
  .replaceAll(/"(rate-limiter-flexible|rolling-rate-limiter)"/g, '"tidegate/$1/redis"')
  .replaceAll('"@upstash/ratelimit"', '"tidegate/upstash/redis"');


const OWN = ["types.ts", "using-types.ts", "middleware-types.ts", "frameworks-types.ts", "redis-types.ts", "remote-types.ts", "worker-types.ts", "durable-types.ts"];
const DOM = ["es2022", "dom", "dom.iterable", "esnext.disposable"];
const APP = { skipLibCheck: true, esModuleInterop: true, types: ["node"] };

const readme = readFileSync(new URL("../../crates/wasm/npm/README.md", import.meta.url), "utf8");
const [onNext] = readme.split("```").filter((text) => text.includes('from "tidegate/next"'));

/** What compiles: the files with their texts, and the options of the compiler. */
const PROJECTS = {
  "every documented use, and no mistake with the drop-in classes": [
    Object.fromEntries([...OWN, "dropin-wrong-types.ts"].map((name) => [name, read(name)])), { lib: DOM, types: [] },
  ],
  "the example of Next.js in the README": [{ "route.mts": onNext.slice(onNext.indexOf("\n")) }, { lib: DOM, types: [] }],
  "without the types of the DOM and of Node": [{ "bare-types.ts": read("bare-types.ts") }, { lib: ["es2022", "esnext.disposable"], types: [] }],
  "apps with the libraries that they were written for, and with ours, by `import` and by `require`": [
    { "app.mts": app, "changed.mts": changed, "changed.cts": changed, "redis.mts": onRedis, "redis-changed.mts": changedOnRedis, "redis-changed.cts": changedOnRedis }, APP,
  ],
  "an app with ours, for a bundler": [{ "app.mts": changed }, { ...APP, module: "esnext", moduleResolution: "bundler" }],
};

for (const [name, [files, options]] of Object.entries(PROJECTS)) {
  test(`the types: ${name}`, () => {
    const where = join(folder, `${Object.keys(PROJECTS).indexOf(name)}`);
    mkdirSync(where);
    for (const [file, text] of Object.entries(files)) writeFileSync(join(where, file), text);
    const compilerOptions = { strict: true, noEmit: true, module: "nodenext", target: "es2022", ...options };
    writeFileSync(join(where, "tsconfig.json"), JSON.stringify({ compilerOptions, files: Object.keys(files) }));
    const { status, stdout } = spawnSync(process.execPath, [tsc, "-p", where], { encoding: "utf8" });
    assert.equal(status, 0, stdout);
  });
}
