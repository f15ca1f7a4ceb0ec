// The package as a user gets it: packed and installed. All files share one installation for each state of the package. It is below the
// root folder, so that programs in it find the packages of the workspace, too.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const source = fileURLToPath(new URL("../../crates/wasm/npm/", import.meta.url));
const target = fileURLToPath(new URL("../../target/npm-installed/", import.meta.url));

/** Where the package is installed. The runner installs it once for all files; a file that runs by itself looks whether it is there. */
export const installed = process.env.TIDEGATE_INSTALLED ?? share();

const { load: importThere } = await import(pathToFileURL(join(installed, "load.js")).href);

/** Imports an entry of the package by its name, as a user does. */
export const load = (name = "tidegate") => importThere(name);

/** A new folder for programs that use the package, which is removed with this process. */
export function project() {
  const folder = mkdtempSync(join(installed, "project-"));
  process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
  symlinkSync("../node_modules", join(folder, "node_modules"));
  return folder;
}

/** An installation where nothing else is installed, in a new folder, which is removed with this process. */
export function installAlone() {
  const folder = mkdtempSync(join(tmpdir(), "tidegate-npm-"));
  process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
  install(folder, join(installed, "tidegate.tgz"));
  return folder;
}

/** Installs the package, unless this state of it is installed. Of two processes that do so at once the first one wins. */
function share() {
  if (!existsSync(join(source, "dist/tidegate.wasm"))) {
    throw new Error(`${source}dist is missing: run \`cargo xtask build npm\` first`);
  }
  const folder = join(target, state());
  if (existsSync(folder)) return folder;
  mkdirSync(target, { recursive: true });
  removeOld();
  const made = mkdtempSync(join(target, "new-"));
  const [{ filename }] = JSON.parse(npm(["pack", "--json", "--pack-destination", made], source));
  renameSync(join(made, filename), join(made, "tidegate.tgz"));
  install(made, "./tidegate.tgz");
  writeFileSync(join(made, "load.js"), "export const load = (name) => import(name);\n");
  try {
    renameSync(made, folder);
  } catch (error) {
    if (!existsSync(folder)) throw error;
    rmSync(made, { recursive: true });
  }
  return folder;
}

/** A hash of all files of the package. */
function state() {
  const hash = createHash("sha256");
  for (const name of readdirSync(source, { recursive: true }).sort()) {
    const file = join(source, name);
    if (!statSync(file).isFile()) continue;
    const bytes = readFileSync(file);
    hash.update(`${name}\n${bytes.length}\n`).update(bytes);
  }
  return hash.digest("hex").slice(0, 16);
}

/** Removes the installations of yesterday: those of today may be in use. */
function removeOld() {
  const yesterday = Date.now() - 86_400_000;
  for (const name of readdirSync(target)) {
    const folder = join(target, name);
    if (statSync(folder).mtimeMs < yesterday) rmSync(folder, { recursive: true, force: true });
  }
}

function install(folder, tarball) {
  writeFileSync(join(folder, "package.json"), JSON.stringify({ private: true, type: "module" }));
  npm(["install", "--offline", "--no-audit", "--no-fund", "--ignore-scripts", tarball], folder);
}

function npm(parameters, cwd) {
  return execFileSync("npm", parameters, { cwd, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
}
