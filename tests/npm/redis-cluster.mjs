// A real Redis Cluster, a real Redis behind sentinels, and one with a replica.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { Cluster, Redis } from "ioredis";
import { createCluster } from "redis";

import { onPort } from "./ports.mjs";
import { start } from "./processes.mjs";
import { until } from "./waiting.mjs";

async function startRedis(parameters) {
  const server = start("redis-server", parameters);
  await server.said(/ready to accept connections|Sentinel ID is/i);
  return server;
}

async function stopAll(servers, folder) {
  for (const server of servers) await server.stop();
  rmSync(folder, { recursive: true, force: true });
}

/** Starts a Cluster of three masters, each with a replica if `hasReplicas`; the replicas come after the masters. */
export async function startCluster({ hasReplicas = false } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "tidegate-cluster-"));
  const count = hasReplicas ? 6 : 3;
  const nodes = await Promise.all(Array.from({ length: count }, () => onPort(async (port) => {
    const files = ["--dir", folder, "--cluster-config-file", `nodes-${port}.conf`, "--dbfilename", `${port}.rdb`, "--save", ""];
    const cluster = ["--cluster-enabled", "yes", "--cluster-node-timeout", hasReplicas ? "3000" : "15000"];
    const server = await startRedis(["--port", `${port}`, "--bind", "127.0.0.1", ...cluster, ...files, "--repl-diskless-sync-delay", "0"]);
    return { port, server, admin: new Redis(port, "127.0.0.1").on("error", () => {}) };
  })));
  const [first] = nodes;
  const ends = [0, 5_461, 10_923, 16_384];
  for (const [place, node] of nodes.entries()) {
    node.id = await node.admin.call("CLUSTER", "MYID");
    if (place < 3) await node.admin.call("CLUSTER", "ADDSLOTSRANGE", ends[place], ends[place + 1] - 1);
    if (place > 0) await first.admin.call("CLUSTER", "MEET", "127.0.0.1", node.port);
  }
  const info = async ({ admin }) => {
    const said = await admin.call("CLUSTER", "INFO");
    return said.includes("cluster_state:ok") && said.includes(`cluster_known_nodes:${count}`);
  };
  for (const node of nodes) await until(() => info(node));
  for (const [place, { admin }] of nodes.slice(3).entries()) {
    await until(() => admin.call("CLUSTER", "REPLICATE", nodes[place].id).then(() => true, () => false));
    await until(async () => (await admin.info("replication")).includes("master_link_status:up"));
  }
  const stop = async () => {
    for (const { admin } of nodes) admin.disconnect();
    await stopAll(nodes.map(({ server }) => server), folder);
  };
  return { nodes, stop };
}

/** The clients of a Cluster that has these nodes: functions that connect, and return a client and how it ends. */
export const clusterClients = (nodes) => ({
  async ioredis() {
    const client = new Cluster(nodes.map(({ port }) => ({ host: "127.0.0.1", port }))).on("error", () => {});
    await client.ping();
    return { client, end: () => client.disconnect() };
  },
  async redis() {
    const rootNodes = nodes.map(({ port }) => ({ socket: { host: "127.0.0.1", port } }));
    const client = createCluster({ rootNodes, topologyRefreshOnReconnectionAttemptStrategy: 100 }).on("error", () => {});
    await client.connect();
    return { client, end: () => client.destroy() };
  },
});

/** Starts a Redis and a sentinel that names it. */
export async function startSentinel() {
  const folder = mkdtempSync(join(tmpdir(), "tidegate-sentinel-"));
  const [port, server] = await onPort(async (port) => [port, await startRedis(["--port", `${port}`, "--bind", "127.0.0.1", "--dir", folder, "--save", ""])]);
  const file = join(folder, "sentinel.conf");
  const [sentinel, watching] = await onPort(async (own) => {
    writeFileSync(file, `port ${own}\nbind 127.0.0.1\ndir ${folder}\nsentinel monitor own 127.0.0.1 ${port} 1\n`);
    return [own, await startRedis([file, "--sentinel"])];
  });
  return { port, sentinel, stop: () => stopAll([server, watching], folder) };
}

/** Starts a Redis and a replica, which follows it. */
export async function startReplicated() {
  const folder = mkdtempSync(join(tmpdir(), "tidegate-replica-"));
  const [master, replica] = await Promise.all([0, 1].map(() => onPort(async (port) => {
    const files = ["--dir", folder, "--dbfilename", `${port}.rdb`, "--save", ""];
    const server = await startRedis(["--port", `${port}`, "--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0", ...files]);
    return { port, server, admin: new Redis(port, "127.0.0.1").on("error", () => {}) };
  })));
  const offset = async ({ admin }, name) => new RegExp(`\n${name}:(\\d+)`).exec(await admin.info("replication"))?.[1];
  /** Whether the replica has received all that the master has done. */
  replica.hasAll = async () => await offset(master, "master_repl_offset") === await offset(replica, "slave_repl_offset");
  replica.follow = async (port) => {
    await replica.admin.replicaof("127.0.0.1", port);
    await until(async () => (await replica.admin.info("replication")).includes("master_link_status:up"));
  };
  await replica.follow(master.port);
  const stop = async () => {
    for (const { admin } of [master, replica]) admin.disconnect();
    await stopAll([master.server, replica.server], folder);
  };
  return { master, replica, stop };
}
