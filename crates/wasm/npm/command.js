// The command `tidegate check`, with the options, the words and the exit codes of the native command.
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";

import { described } from "#authority";
import { caught } from "./errors.js";
import { Limiter } from "./limiter.js";

/** @typedef {{ policy?: string, key?: string, cost?: string, lease?: string, help?: boolean }} Options */

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
export function run(given) {
  try {
    const { values, positionals } = parseArgs({ args: given, options: OPTIONS, allowPositionals: true });
    const [command, file = "policies.toml", ...rest] = positionals;
    if (values.help) {
      console.log(HELP);
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
const OPTIONS = { key: TEXT, policy: TEXT, cost: TEXT, lease: TEXT, help: { type: "boolean", short: "h" } };

/** @type {(file: string, options: Options) => number} */
function check(file, { key, policy, cost, lease }) {
  const text = read(file);
  const [words, ...warnings] = within(file, () => caught(() => described(text)));
  if (key !== undefined) return decide(within("--policy", () => new Limiter(text, { policy })), key, cost, lease);
  for (const [name, value] of Object.entries({ policy, cost, lease })) {
    if (value !== undefined) throw new Error(`--${name}: expected --key beside it, found none`);
  }
  console.log(words.trimEnd());
  for (const warning of warnings) console.error(`warning: ${warning}`);
  return 0;
}

/** @type {(file: string) => string} */
function read(file) {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    throw new Error(`${file}: the policy file cannot be read: ${/** @type {Error} */ (error).message}`);
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
