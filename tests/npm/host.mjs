// A native host: `tidegate serve`.
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { start } from "./processes.mjs";

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
  const host = start(binary, ["serve", "--listen", listen, "--policies", "policies.toml", ...options], { cwd: folder, env });
  const [, address] = await host.said(/listening on http:\/\/(127\.0\.0\.1:\d+)/);
  const stop = async () => {
    await host.stop();
    rmSync(folder, { recursive: true, force: true });
  };
  return { address, url: `http://${address}`, host, stop };
}
