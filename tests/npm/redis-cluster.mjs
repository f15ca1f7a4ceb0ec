// A real Redis Cluster, and a real Redis behind sentinels. Ports are free ones.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

import { Redis } from "ioredis";

import { until } from "./redis.mjs";

async function freePorts(count) {
  const servers = await Promise.all(Array.from({ length: count }, async () => {
    const server = createServer().listen(0, "127.0.0.1");
    await once(server, "listening");
    return server;
  }));
  const ports = servers.map((server) => server.address().port);
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
  return ports;
}

async function start(parameters) {
  const server = spawn("redis-server", parameters, { stdio: ["ignore", "pipe", "inherit"] });
  process.on("exit", () => server.kill("SIGKILL")); // also if a test ends the process
  for await (const line of createInterface({ input: server.stdout })) {
    if (/ready to accept connections|Sentinel ID is/i.test(line)) break;
  }
  server.stdout.resume();
  return server;
}

async function stopAll(servers, folder) {
  for (const server of servers) {
    server.kill("SIGKILL");
    if (server.exitCode === null && server.signalCode === null) await once(server, "exit");
  }
  rmSync(folder, { recursive: true, force: true });
}

/** Starts a Cluster of three masters. */
export async function startCluster() {
  const folder = mkdtempSync(join(tmpdir(), "tidegate-cluster-"));
  const all = await freePorts(6);
  const nodes = await Promise.all([0, 1, 2].map(async (place) => {
    const [port, bus] = [all[place], all[place + 3]];
    const files = ["--dir", folder, "--cluster-config-file", `nodes-${port}.conf`, "--save", ""];
    const server = await start(["--port", `${port}`, "--bind", "127.0.0.1", "--cluster-enabled", "yes", "--cluster-port", `${bus}`, ...files]);
    return { port, bus, server, admin: new Redis(port, "127.0.0.1") };
  }));
  const [first] = nodes;
  const ends = [0, 5_461, 10_923, 16_384];
  for (const [place, { port, bus, admin }] of nodes.entries()) {
    await admin.call("CLUSTER", "ADDSLOTSRANGE", ends[place], ends[place + 1] - 1);
    if (place > 0) await first.admin.call("CLUSTER", "MEET", "127.0.0.1", port, bus);
  }
  for (const { admin } of nodes) {
    await until(async () => {
      const info = await admin.call("CLUSTER", "INFO");
      return info.includes("cluster_state:ok") && info.includes("cluster_known_nodes:3");
    });
  }
  const stop = async () => {
    for (const { admin } of nodes) admin.disconnect();
    await stopAll(nodes.map(({ server }) => server), folder);
  };
  return { nodes, stop };
}

/** Starts a Redis and a sentinel that names it. */
export async function startSentinel() {
  const folder = mkdtempSync(join(tmpdir(), "tidegate-sentinel-"));
  const [port, sentinel] = await freePorts(2);
  const file = join(folder, "sentinel.conf");
  writeFileSync(file, `port ${sentinel}\nbind 127.0.0.1\ndir ${folder}\nsentinel monitor own 127.0.0.1 ${port} 1\n`);
  const servers = [await start(["--port", `${port}`, "--bind", "127.0.0.1", "--dir", folder, "--save", ""])];
  servers.push(await start([file, "--sentinel"]));
  return { port, sentinel, stop: () => stopAll(servers, folder) };
}
