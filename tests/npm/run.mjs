// Runs the tests of the npm package: `node tests/npm/run.mjs [--everything] [FILE…]`.
//
// The files in this folder need nothing but Node. Those in `processes` start servers: one that fails runs once more, alone, and if it
// passes then, it is told as FLAKY. Those in `everything` start servers, too, and run only with `--everything`, as do the loaders, and the
// files in this folder in the other versions of Node.
import { spawn } from "node:child_process";
import { readdirSync } from "node:fs";
import { basename, dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";

import { installed } from "./installed.mjs";

const here = fileURLToPath(new URL(".", import.meta.url));
const root = join(here, "../..");
const node = join(root, "node_modules/.bin/node");
const otherNodes = ["node-22", "node-26"].map((name) => join(here, "loaders/node_modules", name, "bin/node"));
/** Each file has so long, and each of its tests half of it. What hangs is ended, and told by its name. */
const LIMIT_S = { npm: 120, processes: 180, everything: 600, loaders: 900 };
const AT_ONCE = 2;
const COUNTS = ["tests", "pass", "fail", "cancelled", "skipped", "todo"];

const isEverything = process.argv.includes("--everything");
const named = process.argv.slice(2).filter((word) => word !== "--everything").map((file) => resolve(file));
const filesIn = (folder) => readdirSync(join(here, folder)).filter((name) => name.endsWith(".test.mjs")).map((name) => join(here, folder, name));
const folders = ["", "processes", ...(isEverything ? ["everything", "loaders"] : [])];
const files = named.length > 0 ? named : folders.flatMap(filesIn);
const isPure = (file) => dirname(file) === resolve(here);

const running = new Set();
for (const signal of ["SIGINT", "SIGTERM"]) {
  process.on(signal, () => {
    for (const child of running) kill(child);
    process.exit(1);
  });
}

const pure = files.filter(isPure);
const results = await pool(pure);
results.push(...await pool(files.filter((file) => !isPure(file))));
for (const other of isEverything ? otherNodes : []) results.push(...await pool(pure, other));
const flaky = [];
for (const [place, result] of results.entries()) {
  if (result.isPassed || isPure(result.file)) continue;
  console.log(`once more, alone: ${result.name}`);
  results[place] = await run(result.file);
  if (results[place].isPassed) flaky.push(result);
}
tell();

/** Runs files, some at a time, and prints what each has printed when it is done. */
async function pool(files, by = node) {
  const results = [];
  const queue = files.entries();
  await Promise.all(Array.from({ length: AT_ONCE }, async () => {
    for (const [place, file] of queue) results[place] = await run(file, by);
  }));
  return results;
}

/** Runs one file in a process group of its own, so that nothing that it starts outlives it. */
async function run(file, by = node) {
  const began = performance.now();
  const name = relative(root, file) + (by === node ? "" : ` in ${basename(dirname(dirname(by)))}`);
  const env = { ...process.env, TIDEGATE_INSTALLED: installed, NODE_TEST_CONTEXT: undefined };
  const limit = LIMIT_S[basename(dirname(file))];
  const args = ["--test-reporter=spec", `--test-timeout=${limit * 500}`, file];
  const child = spawn(by, args, { cwd: root, env, stdio: ["ignore", "pipe", "pipe"], detached: true });
  running.add(child);
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (text) => { output += text; });
  const timer = setTimeout(() => {
    output += `\n✖ ${name} hangs: ended after ${limit} s\n`;
    child.kill("SIGTERM"); // it prints what its own children have printed
    setTimeout(kill, 5_000, child).unref();
  }, limit * 1000);
  const code = await new Promise((done) => child.once("close", done));
  clearTimeout(timer);
  kill(child);
  running.delete(child);
  const seconds = (performance.now() - began) / 1000;
  const count = (what) => Number(new RegExp(`^ℹ ${what} (\\d+)$`, "m").exec(output)?.[1] ?? 0);
  const counts = Object.fromEntries(COUNTS.map((what) => [what, count(what)]));
  const isPassed = code === 0 && counts.tests > 0;
  if (!isPassed) counts.fail = Math.max(1, counts.fail); // a file that ended before its tests did
  const [done, failing] = output.split(/^✖ failing tests:$/m);
  const printed = done.replace(/^ℹ (tests|suites|pass|fail|cancelled|skipped|todo|duration_ms) .*\n/gm, "").trimEnd();
  console.log(`${name}, ${seconds.toFixed(1)} s\n${printed}\n`);
  return { file, name, seconds, counts, isPassed, failing: failing?.trim() ?? printed.slice(-4_000), printed };
}

function kill(child) {
  try {
    process.kill(-child.pid, "SIGKILL");
  } catch {
    // all have ended
  }
}

/** Prints what was slow, flaky, and failed, with the closing lines of Node's own runner. */
function tell() {
  const slowest = results.toSorted((one, other) => other.seconds - one.seconds).slice(0, 12);
  for (const { name, seconds } of slowest) console.log(`${seconds.toFixed(1).padStart(6)} s  ${name}`);
  for (const { name, printed, failing } of flaky) console.log(`\nFLAKY ${name}\n${printed}\n${failing}`);
  for (const what of COUNTS) console.log(`ℹ ${what} ${results.reduce((sum, { counts }) => sum + counts[what], 0)}`);
  console.log(`ℹ flaky ${flaky.length}`);
  const failed = results.filter(({ isPassed }) => !isPassed);
  if (failed.length === 0) return;
  console.log("\n✖ failing tests:");
  for (const { name, failing } of failed) console.log(`\n${name}\n${failing}`);
  process.exitCode = 1;
}
