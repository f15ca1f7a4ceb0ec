#!/usr/bin/env node
// The command `tidegate check`, with the options, the words and the exit codes of the native command.
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";

import { Limiter, described, toml } from "./all.js";

/** @import { AnyPolicy } from "../index.js" */
/** @typedef {{ policy?: string, key?: string, cost?: string, lease?: string, help?: boolean, version?: boolean }} Options */

const HELP = `Validate a policy file and describe it, or decide on one request

Usage: tidegate check [FILE] [OPTIONS]

Arguments:
  FILE             The policy file, in TOML or JSON [default: policies.toml]

Options:
  --key KEY        Decide on a request with this key
  --policy NAME    Decide by this policy. Optional if the file has only one
  --cost N         The cost of the request; 0 is a peek
  --lease NAME     Acquire a lease of this name. Required if the policy limits leases
  -h, --help       Print this text
  -V, --version    Print the version

Exit codes:
  0  the file is valid; with --key, the request is allowed
  1  the request is refused
  2  an error

Examples:
  npx tidegate check
  npx tidegate check policies.toml --key user:42
  npx tidegate check policies.toml --policy login --key user:42 --cost 2
`;

/**
 * Does what the arguments say, and returns the exit code.
 *
 * @type {(given: string[]) => number}
 */
function run(given) {
  try {
    const { values, positionals } = parseArgs({ args: given, options: OPTIONS, allowPositionals: true });
    const [command, file = "policies.toml", ...rest] = positionals;
    if (values.help) {
      console.log(HELP);
      return 0;
    }
    if (values.version) {
      console.log(`tidegate ${JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")).version}`);
      return 0;
    }
    if (command !== "check") throw new Error(`expected the command \`check\`, found ${command ?? "none"}; see --help`);
    if (rest.length > 0) throw new Error(`expected one policy file, found ${rest.length + 1}`);
    return check(file, values);
  } catch (error) {
    console.error(`error: ${/** @type {Error} */ (error).message}`);
    return 2;
  }
}

const TEXT = { type: "string" };
const OPTIONS = { key: TEXT, policy: TEXT, cost: TEXT, lease: TEXT, help: { type: "boolean", short: "h" }, version: { type: "boolean", short: "V" } };

/** @type {(path: string, options: Options) => number} */
function check(path, { key, policy, cost, lease }) {
  const file = read(path);
  const [words, ...warnings] = within(path, () => described(file));
  if (key !== undefined) return decide(within("--policy", () => new Limiter(file, { policy })), key, cost, lease);
  for (const [name, value] of Object.entries({ policy, cost, lease })) {
    if (value !== undefined) throw new Error(`--${name}: expected --key beside it, found none`);
  }
  console.log(words.trimEnd());
  for (const warning of warnings) console.error(`warning: ${warning}`);
  return 0;
}

/** @type {(path: string) => AnyPolicy} */
function read(path) {
  try {
    const text = readFileSync(path, "utf8");
    return text.trimStart().startsWith("{") ? text : toml(text);
  } catch (error) {
    throw new Error(`${path}: the policy file cannot be read: ${/** @type {Error} */ (error).message}`);
  }
}

/** @type {(limiter: Limiter, key: string, cost: string | undefined, lease: string | undefined) => number} */
function decide(limiter, key, cost, lease) {
  const request = cost === undefined ? {} : { cost: Number(cost || NaN) };
  const { allowed, limit, remaining, retryAfterUs, resetAfterUs, denied } =
    lease === undefined ? limiter.check(key, request) : limiter.acquire(key, { ...request, lease });
  console.log(JSON.stringify({
    allowed, limit, remaining, retry_after_us: retryAfterUs, reset_after_us: resetAfterUs, denied,
  }));
  return allowed ? 0 : 1;
}

/**
 * Says in an error where it is.
 *
 * @template T
 * @param {string} where
 * @param {() => T} call
 */
function within(where, call) {
  try {
    return call();
  } catch (/** @type {any} */ error) {
    throw new Error(`${where}: ${error.message.replace(/^`options.policy`: /, "")}`);
  }
}

process.stdout.on("error", (/** @type {any} */ error) => {
  if (error.code === "EPIPE") process.exit(141); // nobody reads any more: the code of a program that SIGPIPE ended
  console.error(`error: the output cannot be written: ${error.message}`);
  process.exit(2);
});
process.exitCode = run(process.argv.slice(2));
