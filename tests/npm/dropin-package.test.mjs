// The entries of the drop-in classes as a user gets them: by `import` and `require`, with one module of WebAssembly, and their types.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";

import { folder } from "./dropin.mjs";
import { link } from "./installed.mjs";

mkdirSync(join(folder, "node_modules/@upstash"));
link(folder, ["@types", "@upstash/ratelimit", "@upstash/redis", "express-rate-limit", "rate-limiter-flexible", "rolling-rate-limiter"]);
const tsc = fileURLToPath(new URL("../../node_modules/typescript/bin/tsc", import.meta.url));
const app = readFileSync(new URL("dropin-app.ts", import.meta.url), "utf8");

/** The app with our classes. The middleware of express-rate-limit stays. */
const changed = app
  .replace('{ MemoryStore } from "express-rate-limit"', '{ MemoryStore } from "tidegate/express-rate-limit"')
  .replaceAll(/"(rate-limiter-flexible|rolling-rate-limiter)"/g, '"tidegate/$1"')
  .replaceAll('"@upstash/ratelimit";', '"tidegate/upstash";');

const ENTRIES = ["express-rate-limit", "rate-limiter-flexible", "rolling-rate-limiter", "upstash"];

test("each entry is required where Node requires no ES modules", () => {
  const file = join(folder, "all.cjs");
  const names = ENTRIES.map((entry) => `...Object.keys(require("tidegate/${entry}"))`);
  writeFileSync(file, `console.log([${names.join(", ")}].length);\n`);
  const printed = execFileSync(process.execPath, ["--no-experimental-require-module", file], { cwd: folder, encoding: "utf8" });
  assert.equal(printed, "16\n");
});

for (const [kind, extension] of [["import", "mjs"], ["require", "cjs"]]) {
  test(`by ${kind}, an entry uses the module of the package, and throws its errors`, () => {
    const file = join(folder, `shared.${extension}`);
    const names = ["{ ArgumentError }", "{ MemoryStore }", "{ RateLimiterMemory }", "{ InMemoryRateLimiter }", "{ Ratelimit }"];
    const from = ["tidegate", ...ENTRIES.map((entry) => `tidegate/${entry}`)];
    const imports = names.map((name, place) => (kind === "import" ? `import ${name} from "${from[place]}";` : `const ${name} = require("${from[place]}");`));
    writeFileSync(file, `${imports.join("\n")}
for (const make of [() => new MemoryStore({ prefix: 5 }), () => new RateLimiterMemory(), () => new InMemoryRateLimiter(), () => new Ratelimit()]) {
  try { make(); } catch (error) { console.log(error instanceof ArgumentError); }
}
`);
    assert.equal(execFileSync(process.execPath, [file], { cwd: folder, encoding: "utf8" }), "true\n".repeat(4));
  });
}

for (const platform of ["node", "browser"]) {
  test(`a bundler for ${platform} puts the entries and the package into one script, with one module`, () => {
    const entry = join(folder, "bundled.mjs");
    writeFileSync(entry, `import { Limiter } from "tidegate";
import { RateLimiterMemory } from "tidegate/rate-limiter-flexible";
import { Ratelimit } from "tidegate/upstash";
const memory = new RateLimiterMemory({ points: 2, duration: 1 });
const ratelimit = new Ratelimit({ limiter: Ratelimit.slidingWindow(1, "1h") });
memory.consume("a").then(({ remainingPoints }) => console.log(remainingPoints));
ratelimit.limit("a").then(({ success }) => console.log(success, typeof Limiter));
`);
    const outfile = join(folder, `bundled-${platform}.cjs`);
    const esbuild = fileURLToPath(new URL("../../node_modules/.bin/esbuild", import.meta.url));
    const options = ["--bundle", `--platform=${platform}`, "--format=cjs", "--log-level=warning"];
    execFileSync(esbuild, [entry, ...options, `--outfile=${outfile}`], { cwd: folder });
    assert.equal(execFileSync(process.execPath, [outfile], { cwd: tmpdir(), encoding: "utf8" }), "1\ntrue function\n");
    assert.equal(readFileSync(outfile, "utf8").split("new WebAssembly.Instance").length, 2);
  });
}

describe("an app compiles", () => {
  for (const [name, source, module] of [
    ["with the libraries it was written for", app, "nodenext"], ["with ours", changed, "nodenext"],
    ["with ours, by `require`", changed, "node16"], ["with ours, for a bundler", changed, "esnext"],
  ]) {
    test(name, () => {
      const file = join(folder, `app.${module === "node16" ? "cts" : "mts"}`);
      writeFileSync(file, source);
      const resolution = module === "esnext" ? "bundler" : module;
      const options = ["--strict", "--noEmit", "--skipLibCheck", "--esModuleInterop", "--target", "es2022", "--types", "node"];
      const { status, stdout } = spawnSync(process.execPath, [tsc, ...options, "--module", module, "--moduleResolution", resolution, file], { cwd: folder, encoding: "utf8" });
      assert.equal(status, 0, stdout);
    });
  }

  test("but not with mistakes", () => {
    const file = join(folder, "wrong.mts");
    writeFileSync(file, `import { MemoryStore } from "tidegate/express-rate-limit";
import { RateLimiterMemory } from "tidegate/rate-limiter-flexible";
import { InMemoryRateLimiter } from "tidegate/rolling-rate-limiter";
import { Ratelimit } from "tidegate/upstash";
// @ts-expect-error a prefix is a text
new MemoryStore({ prefix: 5 });
// @ts-expect-error points are needed
new RateLimiterMemory({ duration: 1 });
// @ts-expect-error an interval is needed
new InMemoryRateLimiter({ maxInInterval: 1 });
// @ts-expect-error there is no such unit
Ratelimit.fixedWindow(5, "10 fortnights");
// @ts-expect-error limits in Redis are not read
new Ratelimit({ limiter: Ratelimit.fixedWindow(5, "10 s"), dynamicLimits: true });
// @ts-expect-error an algorithm is needed
new Ratelimit({ limiter: () => 5 });
`);
    const { status, stdout } = spawnSync(process.execPath, [tsc, "--strict", "--noEmit", "--module", "nodenext", "--target", "es2022", "--types", "", file], { cwd: folder, encoding: "utf8" });
    assert.equal(status, 0, stdout);
  });
});
