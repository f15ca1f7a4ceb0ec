// The package as a user gets it: packed, and installed in its own folder.
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const source = fileURLToPath(new URL("../../crates/wasm/npm/", import.meta.url));

/** Installs the packed tarball in a new folder, which is removed with this process. */
export function install() {
  if (!existsSync(join(source, "dist/tidegate.wasm"))) {
    throw new Error(`${source}dist is missing: run \`cargo xtask build npm\` first`);
  }
  const folder = mkdtempSync(join(tmpdir(), "tidegate-npm-"));
  process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
  const [{ filename }] = JSON.parse(npm(["pack", "--json", "--pack-destination", folder], source));
  writeFileSync(join(folder, "package.json"), JSON.stringify({ private: true, type: "module" }));
  npm(["install", "--offline", "--no-audit", "--no-fund", "--ignore-scripts", `./${filename}`], folder);
  return folder;
}

/** Lets programs in that folder import these packages of the workspace. */
export function link(folder, names) {
  for (const name of names) {
    mkdirSync(dirname(join(folder, "node_modules", name)), { recursive: true }); // of a scope
    symlinkSync(fileURLToPath(new URL(`../../node_modules/${name}`, import.meta.url)), join(folder, "node_modules", name));
  }
}

/** Imports an entry of the package out of that folder, by its name as a user does. */
export async function load(folder = install(), name = "tidegate", { hasDefault = true } = {}) {
  const entry = join(folder, `${name.replaceAll("/", "-")}.js`);
  writeFileSync(entry, `export * from "${name}";\n${hasDefault ? `export { default } from "${name}";\n` : ""}`);
  return import(pathToFileURL(entry).href);
}

function npm(parameters, cwd) {
  return execFileSync("npm", parameters, { cwd, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
}
