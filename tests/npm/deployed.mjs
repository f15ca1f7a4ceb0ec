// Workers as a user of the package deploys them: wrangler bundles them, and workerd runs the bundle. Nothing of Rust is
// on the PATH.
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";

import { start } from "./processes.mjs";

const tools = fileURLToPath(new URL("../../node_modules/", import.meta.url));
const workerd = createRequire(import.meta.url)("workerd").default;
const PATH = join(tools, ".bin");

if (spawnSync("cargo", ["--version"], { env: { PATH } }).error?.code !== "ENOENT") {
  throw new Error(`${PATH}: expected nothing of Rust, found cargo`);
}

/** Lets wrangler bundle the Worker of a folder, and returns the modules of the bundle, the main one first. */
export function bundle(folder, main) {
  // the build of the template calls `npx`, which is beside npm
  const npx = join(folder, "npx");
  mkdirSync(npx, { recursive: true });
  if (!existsSync(join(npx, "npx"))) symlinkSync(execFileSync("which", ["npx"], { encoding: "utf8" }).trim(), join(npx, "npx"));
  const wrangler = [join(tools, "wrangler/bin/wrangler.js"), "deploy", "--dry-run", "--outdir", "dist"];
  const env = {
    PATH: `${PATH}:${npx}`, npm_config_script_shell: "/bin/sh", HOME: folder, WRANGLER_HIDE_BANNER: "true", WRANGLER_SEND_METRICS: "false",
  };
  execFileSync(join(PATH, "node"), wrangler, { cwd: folder, env, stdio: ["ignore", "pipe", "pipe"] });
  const others = readdirSync(join(folder, "dist")).filter((file) => /\.(wasm|toml)$/.test(file));
  return [main, ...others].map((file) => ({ name: `./${file}`, file: join(folder, "dist", file) }));
}

/**
 * Runs the Worker `tidegate`, and `caller`, which has a binding to it. Each has modules and the texts of its variables.
 * `policies` takes the place of the policy file in the bundle.
 */
export async function serve(folder, { tidegate, caller, policies }) {
  const storage = join(folder, "storage");
  mkdirSync(storage, { recursive: true });
  const config = `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "tidegate", worker = .tidegate), (name = "caller", worker = .caller),
    (name = "disk", disk = (path = ${quoted(storage)}, writable = true))],
  sockets = [(name = "tidegate", address = "127.0.0.1:0", http = (), service = "tidegate"),
    (name = "caller", address = "127.0.0.1:0", http = (), service = "caller")]);
const tidegate :Workerd.Worker = (
  modules = [${tidegate.modules.map((module) => embedded(folder, module, policies)).join(", ")}],
  compatibilityDate = "2026-11-01",
  compatibilityFlags = ["enable_request_signal"],
  bindings = [(name = "KEYS", durableObjectNamespace = "Keys"),
    (name = "POLICIES", durableObjectNamespace = "Policies") ${variables(tidegate)}],
  durableObjectNamespaces = [(className = "Keys", uniqueKey = "tidegate-keys", enableSql = true),
    (className = "Policies", uniqueKey = "tidegate-policies", enableSql = true)],
  durableObjectStorage = (localDisk = "disk"));
const caller :Workerd.Worker = (
  modules = [${caller.modules.map((module) => embedded(folder, module)).join(", ")}],
  compatibilityDate = "2026-11-01",
  bindings = [(name = "TIDEGATE", service = (name = "tidegate", entrypoint = "Tidegate")) ${variables(caller)}]);
`;
  return run(folder, config, 2);
}

/** Runs workerd with a configuration that has so many sockets. Returns their URLs by their names, and what stops it. */
export async function run(folder, config, sockets) {
  const file = join(folder, "config.capnp");
  writeFileSync(file, config);
  const server = start(workerd, ["serve", file, "--control-fd=1"], { env: { PATH } });
  const [listening] = await server.said(new RegExp(`(?:"socket":"\\w+","port":\\d+[^]*?){${sockets}}`));
  const urls = [...listening.matchAll(/"socket":"(\w+)","port":(\d+)/g)].map(([, name, port]) => [name, `http://127.0.0.1:${port}`]);
  return { ...Object.fromEntries(urls), said: server.said, stop: server.stop };
}

const quoted = JSON.stringify;

/** A module in the configuration, which names files from its own folder. */
export function embedded(folder, { name, file, text }, policies) {
  const kind = name.endsWith(".wasm") ? "wasm" : name.endsWith(".toml") ? "text" : "esModule";
  const given = kind === "text" && policies !== undefined ? policies : text;
  const content = given === undefined ? `embed ${quoted(relative(folder, file))}` : quoted(given);
  return `(name = ${quoted(name)}, ${kind} = ${content})`;
}

const variables = ({ variables = {} }) =>
  Object.entries(variables).map(([name, text]) => `, (name = ${quoted(name)}, text = ${quoted(text)})`).join("");
