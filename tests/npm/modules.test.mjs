// The number of modules of WebAssembly that a process loads: the entries share one.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { installAlone } from "./installed.mjs";

const folder = installAlone();

const { exports: exported } = JSON.parse(readFileSync(join(folder, "node_modules/tidegate/package.json"), "utf8"));
/** All entries that Node can import: those of Workers alone say what they need. */
const ENTRIES = Object.entries(exported)
  .filter(([name, to]) => typeof to === "object" && ![undefined, "./elsewhere.cjs"].includes(to.node ?? to.default) && name !== "./slim")
  .map(([name]) => name.replace(/^\./, "tidegate"));

/** Counts what is compiled and what is instantiated; the entries are imported after this. */
const COUNTER = `
const { Module, Instance } = WebAssembly;
const counted = { modules: 0, instances: 0 };
WebAssembly.Module = class extends Module { constructor(...args) { super(...args); counted.modules++; } };
WebAssembly.Instance = class extends Instance { constructor(...args) { super(...args); counted.instances++; } };
for (const name of ["compile", "compileStreaming", "instantiate", "instantiateStreaming"]) {
  WebAssembly[name] = () => { throw new Error("expected no call of WebAssembly." + name); };
}
`;

/** One limiter for everything: from TOML, asked by middleware, beside the classes of other limiters. */
const USE = `
const limiter = new Limiter(toml('limits = [{ algorithm = "fixed_window", limit = 1, period = "1h" }]'));
rateLimit(limiter, { key: () => "a" });
const client = { callBuffer: async () => {} };
new RedisLimiter(toml('limits = [{ algorithm = "fixed_window", limit = 1, period = "1h" }]'), client);
new RateLimiterMemory({ points: 1, duration: 1 });
let error;
try { new RedisLimiter({ limits: [] }, client); } catch (thrown) { error = thrown; }
console.log(JSON.stringify({ ...counted, granted: limiter.check("a").allowed, isOneClass: error instanceof PolicyError }));
`;

const ESM = `${COUNTER}
for (const name of ${JSON.stringify(ENTRIES)}) await import(name);
const [{ Limiter, PolicyError }, { toml }, { RedisLimiter }, { rateLimit }, { RateLimiterMemory }] = await Promise.all(
  ["tidegate", "tidegate/toml", "tidegate/redis", "tidegate/express", "tidegate/rate-limiter-flexible"].map((name) => import(name)),
);
${USE}`;

const CJS = `${COUNTER}
for (const name of ${JSON.stringify(ENTRIES)}) require(name);
const { Limiter, PolicyError } = require("tidegate");
const { toml } = require("tidegate/toml");
const { RedisLimiter } = require("tidegate/redis");
const { rateLimit } = require("tidegate/express");
const { RateLimiterMemory } = require("tidegate/rate-limiter-flexible");
${USE}`;

const ONE = { modules: 1, instances: 1, granted: true, isOneClass: true };

test("Node has these entries", () => {
  for (const name of ["", "/redis", "/toml", "/remote", "/express", "/next", "/upstash"]) assert.ok(ENTRIES.includes(`tidegate${name}`), name);
});

for (const [name, file, code] of [["import", "all.mjs", ESM], ["require", "all.cjs", CJS]]) {
  test(`all entries load one module by ${name}`, () => {
    writeFileSync(join(folder, file), code);
    assert.deepEqual(JSON.parse(execFileSync(process.execPath, [file], { cwd: folder, encoding: "utf8" })), ONE);
  });
}

test("the command loads one module", () => {
  writeFileSync(join(folder, "counter.cjs"), `${COUNTER}process.on("exit", () => console.log(JSON.stringify(counted)));`);
  writeFileSync(join(folder, "policies.toml"), '[policies.a]\nlimits = [{ algorithm = "fixed_window", limit = 1, period = "1h" }]\n');
  const command = join(folder, "node_modules/tidegate/dist/node/command.js");
  const said = execFileSync(process.execPath, ["--require", "./counter.cjs", command, "check", "--key", "a"], { cwd: folder, encoding: "utf8" });
  assert.deepEqual(JSON.parse(said.trim().split("\n").at(-1)), { modules: 1, instances: 1 });
});

// the condition `browser` of `exports` selects the module of browsers, which has no code for Redis
test("in a browser, `tidegate` is one module, and TOML another one that is loaded only with it", () => {
  const browser = (code) => {
    writeFileSync(join(folder, "browser.mjs"), COUNTER + code);
    return JSON.parse(execFileSync(process.execPath, ["--conditions=browser", "browser.mjs"], { cwd: folder, encoding: "utf8" }));
  };
  const limits = '{ limits: [{ algorithm: "fixed_window", limit: 1, period: "1h" }] }';
  assert.deepEqual(browser(`
const { Limiter } = await import("tidegate");
const { rateLimit } = await import("tidegate/hono");
await import("tidegate/upstash");
const limiter = new Limiter(${limits});
rateLimit(limiter, { key: () => "a" });
console.log(JSON.stringify({ ...counted, names: WebAssembly.Module.exports(new Module((await import("node:fs")).readFileSync("node_modules/tidegate/dist/tidegate.wasm"))).filter(({ name }) => /authority|toml|described/i.test(name)) }));
`), { modules: 1, instances: 1, names: [] });
  assert.deepEqual(browser(`
const { Limiter, PolicyError } = await import("tidegate");
const { toml } = await import("tidegate/toml");
const limiter = new Limiter(toml('limits = [{ algorithm = "fixed_window", limit = 1, period = "1h" }]'));
let error;
try { new Limiter(toml("limits = ['é'")); } catch (thrown) { error = thrown; }
let other;
try { new Limiter(toml("limits = []\\n\\nlimit = 'é'")); } catch (thrown) { other = thrown; }
console.log(JSON.stringify({
  ...counted, granted: limiter.check("a").allowed, isOneClass: error instanceof PolicyError, places: [error.line, other.line, other.path],
}));
`), { ...ONE, modules: 2, instances: 2, places: [1, 3, "limit"] });
});
