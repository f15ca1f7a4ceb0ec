// The snippets of both READMEs print what their comments say.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";

import { startHost } from "../host.mjs";
import { project } from "../installed.mjs";
import { startServer } from "../redis.mjs";

const folder = project();
const readme = readFileSync(join(folder, "node_modules/tidegate/README.md"), "utf8");
const ofRepository = readFileSync(new URL("../../../README.md", import.meta.url), "utf8");
const snippets = [...(readme + ofRepository).matchAll(/^```js\n(.*?)^```$/gms)].map(([, code]) => code);

const [redis, host] = await Promise.all([startServer(), startHost(readFileSync(new URL("../../../policies.toml", import.meta.url), "utf8"))]);
after(() => Promise.all([redis.stop(), host.stop()]));
// no snippet is about the deadline of a call to Redis, which a busy machine may miss
const patient = join(folder, "patient.mjs");
writeFileSync(patient, `const { setTimeout } = globalThis;
globalThis.setTimeout = (then, ms, ...given) => setTimeout(then, ms === 250 ? 30_000 : ms, ...given);
`);
const places = { REDIS_URL: redis.path, TIDEGATE_URL: host.url, TIDEGATE_TOKEN: "secret" };

test("the README has snippets", () => assert.ok(snippets.length >= 3));

for (const [index, code] of snippets.entries()) {
  test(`snippet ${index + 1} of the READMEs prints the output in its comments`, () => {
    const promised = [...code.matchAll(/^\s*console\.log\(.*\); \/\/ (.*)$/gm)].map(([, line]) => line);
    assert.ok(promised.length > 0);
    const file = join(folder, `snippet-${index + 1}.js`);
    writeFileSync(file, code);
    const printed = execFileSync(process.execPath, ["--import", patient, file], { cwd: folder, encoding: "utf8", env: { ...process.env, ...places } });
    assert.deepEqual(printed.trimEnd().split("\n"), promised);
  });
}
