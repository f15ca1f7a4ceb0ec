// A native host: `tidegate serve`.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const target = process.env.CARGO_TARGET_DIR ?? fileURLToPath(new URL("../../target/", import.meta.url));
const binary = process.env.TIDEGATE_HOST ?? join(target, "debug/tidegate");

/**
 * Starts a host under these policies, in memory unless `options` name a Redis. It lives until `stop` is called. Its token is "secret",
 * and that for administration "admin".
 */
export async function startHost(policies, { listen = "127.0.0.1:0", options = [], env = { TIDEGATE_TOKEN: "secret", TIDEGATE_ADMIN_TOKEN: "admin" } } = {}) {
  if (!existsSync(binary)) throw new Error(`${binary} is missing: run \`cargo build -p tidegate\``);
  const folder = mkdtempSync(join(tmpdir(), "tidegate-host-"));
  writeFileSync(join(folder, "policies.toml"), policies);
  const host = spawn(binary, ["serve", "--listen", listen, "--policies", "policies.toml", ...options], { cwd: folder, stdio: ["ignore", "pipe", "pipe"], env });
  const end = () => {
    host.kill("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
  };
  process.on("exit", end); // also if a test ends the process
  const address = await new Promise((resolve, reject) => {
    host.on("exit", (code) => reject(new Error(`the host ended with ${code}`)));
    createInterface({ input: host.stdout }).on("line", (line) => {
      const found = /^listening on http:\/\/(127\.0\.0\.1:\d+)/.exec(line);
      if (found !== null) resolve(found[1]);
    });
    host.stderr.resume();
  });
  const stop = async () => {
    end();
    if (host.exitCode === null && host.signalCode === null) await once(host, "exit");
  };
  return { address, url: `http://${address}`, host, stop };
}
