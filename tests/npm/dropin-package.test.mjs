// The entries of the drop-in classes as a user gets them: by `import` and `require`, with one module of WebAssembly.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { load, project } from "./installed.mjs";

const folder = project();
const ENTRIES = ["express-rate-limit", "rate-limiter-flexible", "rolling-rate-limiter", "upstash"];

test("each entry is required where Node requires no ES modules", () => {
  const file = join(folder, "all.cjs");
  const names = ENTRIES.map((entry) => `...Object.keys(require("tidegate/${entry}"))`);
  writeFileSync(file, `console.log([${names.join(", ")}].length);\n`);
  const printed = execFileSync(process.execPath, ["--no-experimental-require-module", file], { cwd: folder, encoding: "utf8" });
  assert.equal(printed, "17\n");
});

for (const entry of [...ENTRIES, ...ENTRIES.map((entry) => `${entry}/redis`)]) {
  test(`${entry}: \`require\` gives the classes that \`import\` gives, under their names`, async () => {
    const [{ default: preferred, ...imported }, { default: same, ...required }] = [await load(`tidegate/${entry}`), createRequire(join(folder, "a.cjs"))(`tidegate/${entry}`)];
    assert.deepEqual(Object.keys(required).sort(), Object.keys(imported).sort());
    for (const [name, type] of Object.entries(imported)) assert.deepEqual([type.name, required[name].name], [name, name]);
    assert.equal(typeof same, typeof preferred);
    if (typeof preferred === "function") assert.ok(Object.values(imported).includes(preferred));
    else if (preferred !== undefined) assert.deepEqual({ ...preferred }, imported);
  });
}

for (const kind of ["import", "require"]) {
  test(`by ${kind}, an entry does not load Redis, and that of Redis has the same classes`, () => {
    const file = join(folder, `apart.${kind === "import" ? "mjs" : "cjs"}`);
    const of = (names, from) => (kind === "import" ? `import { ${names.replaceAll(":", " as")} } from "${from}";` : `const { ${names} } = require("${from}");`);
    const memory = ENTRIES.map((entry, place) => (kind === "import" ? `import * as entry${place} from "tidegate/${entry}";` : `const entry${place} = require("tidegate/${entry}");`));
    writeFileSync(join(folder, "count.cjs"), `globalThis.compiled = 0;
const { Module } = WebAssembly;
WebAssembly.Module = class extends Module { constructor(bytes) { super(bytes); globalThis.compiled++; } };
`);
    writeFileSync(file, `${memory.join("\n")}\nconsole.log(globalThis.compiled);\n`);
    assert.equal(execFileSync(process.execPath, ["--require", "./count.cjs", file], { cwd: folder, encoding: "utf8" }), "1\n");
    writeFileSync(file, `${of("RateLimiterRes", "tidegate/rate-limiter-flexible")}
${of("RateLimiterRes: Same, RateLimiterRedis", "tidegate/rate-limiter-flexible/redis")}
console.log(RateLimiterRes === Same, typeof RateLimiterRedis);
`);
    assert.equal(execFileSync(process.execPath, [file], { cwd: folder, encoding: "utf8" }), "true function\n");
  });
}

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
Promise.all([memory.consume("a"), ratelimit.limit("a")])
  .then(([{ remainingPoints }, { success }]) => console.log(remainingPoints, success, typeof Limiter));
`);
    const outfile = join(folder, `bundled-${platform}.cjs`);
    const esbuild = fileURLToPath(new URL("../../node_modules/.bin/esbuild", import.meta.url));
    const options = ["--bundle", `--platform=${platform}`, "--format=cjs", "--log-level=warning"];
    execFileSync(esbuild, [entry, ...options, `--outfile=${outfile}`], { cwd: folder });
    assert.equal(execFileSync(process.execPath, [outfile], { cwd: tmpdir(), encoding: "utf8" }), "1 true function\n");
    assert.equal(readFileSync(outfile, "utf8").split("new WebAssembly.Instance").length, 2);
  });
}
