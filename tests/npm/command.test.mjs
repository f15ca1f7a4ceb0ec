// The command `npx tidegate check`, as the package installs it.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { openSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { project } from "./installed.mjs";

const folder = project();
const command = join(folder, "node_modules/.bin/tidegate");

const POLICIES = `
[policies.api]
limits = [{ algorithm = "token_bucket", capacity = 5, rate = "1/s" }]
deny = ["mallory"]

[policies.jobs]
limits = [{ algorithm = "concurrency", capacity = 2, time_to_live = "30s" }]
`;
writeFileSync(join(folder, "policies.toml"), POLICIES);
writeFileSync(join(folder, "one.json"), '{"policies":{"api":{"limits":[{"algorithm":"fixed_window","limit":5,"period":"1h"}]}}}');

/** Runs the command with these arguments, and returns its exit code and what it has printed. */
function tidegate(...given) {
  const { status, stdout, stderr } = spawnSync(command, given, { cwd: folder, encoding: "utf8" });
  return { status, stdout, stderr };
}

test("a valid file is described in the words of the native command", () => {
  const { status, stdout, stderr } = tidegate("check");
  assert.deepEqual([status, stderr], [0, ""]);
  assert.match(stdout, /^api: no description\n {2}api: bursts of 5, then every 1 s; full after 5 s\n {2}always denied: "?mallory"?\n/);
  assert.match(stdout, /^jobs: no description\n {2}jobs: 2 at once, each for 30 s unless renewed\n/m);
  assert.match(tidegate("check", "one.json").stdout, /^api: no description\n {2}api: 5 in every aligned 1 h\n/);
});

test("an error names its place in the file", () => {
  writeFileSync(join(folder, "wrong.toml"), POLICIES.replace('"1/s"', '"1/fortnight"'));
  assert.deepEqual(tidegate("check", "wrong.toml"), {
    status: 2, stdout: "",
    stderr: 'error: wrong.toml: line 3, column 62: policies.api.limits[0].rate: expected a whole number above 0, a slash and a span of ' +
      'time, such as "100/s" or "5/15m"; found "1/fortnight"\n',
  });
  writeFileSync(join(folder, "misspelt.toml"), POLICIES.replace("capacity = 5", "capcity = 5"));
  assert.match(tidegate("check", "misspelt.toml").stderr,
    /^error: misspelt\.toml: line 3, column 41: policies\.api\.limits\[0\]\.capcity: expected one of .*, `capacity`, `rate`, `start`; found/);
  assert.match(tidegate("check", "absent.toml").stderr, /^error: absent\.toml: the policy file cannot be read: ENOENT/);
});

test("it warns of what a file may not mean", () => {
  writeFileSync(join(folder, "warned.toml"), `[policies.api]\nkey = ["header:x-api-key"]\n${POLICIES.split("\n")[2]}\n`);
  const { status, stderr } = tidegate("check", "warned.toml");
  assert.equal(status, 0);
  assert.match(stderr, /^warning: policies\.api: /);
});

test("it decides once, and the exit code says how", () => {
  const decided = (...given) => {
    const { status, stdout, stderr } = tidegate("check", "policies.toml", ...given);
    assert.equal(stderr, "");
    return [status, JSON.parse(stdout)];
  };
  const granted = { allowed: true, limit: 5, remaining: 3, retry_after_us: 0, reset_after_us: 2_000_000 };
  assert.deepEqual(decided("--policy", "api", "--key", "user:42", "--cost", "2"), [0, granted]);
  const [status, denied] = decided("--policy", "api", "--key", "mallory");
  assert.deepEqual([status, denied.allowed, denied.denied], [1, false, true]);
  assert.deepEqual(decided("--policy", "jobs", "--key", "user:42", "--lease", "a")[1].remaining, 1);
  assert.equal(JSON.parse(tidegate("check", "one.json", "--key", "user:42").stdout).remaining, 4);
});

test("help has examples, and a wrong call says what is expected", () => {
  const { status, stdout } = tidegate("--help");
  assert.equal(status, 0);
  assert.match(stdout, /Usage: tidegate check \[FILE\]/);
  assert.match(stdout, /Examples:\n {2}npx tidegate check\n/);
  assert.deepEqual(tidegate("check", "--help"), { status, stdout, stderr: "" });
  const { version } = JSON.parse(readFileSync(join(folder, "node_modules/tidegate/package.json"), "utf8"));
  assert.deepEqual(tidegate("--version"), { status: 0, stdout: `tidegate ${version}\n`, stderr: "" });
  for (const [given, message] of [
    [[], "expected the command `check`, found none; see --help"],
    [["serve"], "expected the command `check`, found serve; see --help"],
    [["check", "a", "b"], "expected one policy file, found 2"],
    [["check", "--keys", "a"], /^Unknown option '--keys'/],
    [["check", "--cost", "2"], "--cost: expected --key beside it, found none"],
    [["check", "--key", "a"], '--policy: expected one of ["api", "jobs"], found none'],
    [["check", "--key", "a", "--policy", "jobs"], /hold leases/],
    [["check", "--key", "a", "--policy", "api", "--cost", "two"], /`cost`: expected a whole number from 0 .*, found NaN$/],
    [["check", "--key", "a", "--policy", "api", "--cost", "6"], /6 can never be granted/],
    [["check", "--key", "", "--policy", "api"], /`key`: expected 1 to 512 bytes, found 0/],
  ]) {
    const { status, stdout, stderr } = tidegate(...given);
    assert.deepEqual([status, stdout], [2, ""], given.join(" "));
    const [, said] = /^error: (.*)\n/.exec(stderr);
    if (typeof message === "string") assert.equal(said, message);
    else assert.match(said, message);
  }
});

test("the README says what the help says", () => {
  const readme = readFileSync(join(folder, "node_modules/tidegate/README.md"), "utf8");
  for (const option of ["--key", "--policy", "--cost", "--lease"]) assert.ok(readme.includes(`\`${option} `), option);
});

test("output that nobody reads ends it quietly, and output that cannot be written is an error", async () => {
  const unread = spawn("sh", ["-c", 'read closed; exec "$0" --help', command], { cwd: folder, stdio: ["pipe", "pipe", "inherit"] });
  unread.stdout.destroy();
  unread.stdin.end("closed\n");
  assert.deepEqual(await once(unread, "exit"), [141, null]);
  const { status, stderr } = spawnSync(command, ["--help"], { cwd: folder, encoding: "utf8", stdio: ["ignore", openSync("/dev/full", "w"), "pipe"] });
  assert.equal(status, 2);
  assert.match(stderr, /^error: .*ENOSPC/);
});
