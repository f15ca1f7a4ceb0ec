// A real redis-server for @upstash/ratelimit, which otherwise asks Upstash over HTTP.
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";

import { start } from "./processes.mjs";
import { until } from "./waiting.mjs";

/** Starts a server that lives until `stop` is called, by default at a new path. */
export async function startServer(path = join(mkdtempSync(join(tmpdir(), "tidegate-redis-")), "redis.sock"), more = []) {
  const server = start("redis-server", ["--port", "0", "--unixsocket", path, "--save", "", "--dir", dirname(path), ...more]);
  await server.said(/ready to accept connections/);
  const stop = async () => {
    await server.stop();
    rmSync(dirname(path), { recursive: true, force: true });
  };
  return { path, server, stop };
}

/** Waits until Redis counts so many nodes, and each of them has read the count. */
export async function announced(admin, nodes) {
  let times = {};
  const read = async () => {
    const found = await admin.zrange("tidegate:hosts", 0, -1, "WITHSCORES");
    return Object.fromEntries(Array.from({ length: found.length / 2 }, (_, place) => [found[2 * place], Number(found[2 * place + 1])]));
  };
  await until(async () => Object.keys(times = await read()).length === nodes);
  // a node has a share once it has read a count 4 s after its first one, so it has announced itself for the fourth time
  for (let time = 0; time < 3; time++) {
    const before = times;
    await until(async () => Object.entries(times = await read()).every(([node, at]) => at > before[node]));
  }
}

/**
 * Starts a server and connects to it. The client has the calls that the library makes.
 * Redis goes by its own clock, which no test can move, so the client removes keys by the clock of the test: a key of a script
 * that has a time to live is removed after it, in whole steps of `stepMs`.
 */
export async function startRedis() {
  const { path, stop: stopServer } = await startServer();
  const socket = connect(path);
  await once(socket, "connect");
  const send = sender(socket);
  const expiries = new Map();
  const expire = async () => {
    for (const [key, time] of expiries) if (time <= Date.now() && expiries.delete(key)) await send("DEL", key);
  };
  const client = {
    /** The client for scripts whose keys expire by the test's clock. */
    expiring: (stepMs) => ({
      ...client,
      async eval(script, keys, args) {
        await expire();
        const answer = await client.eval(script, keys, args);
        const left = await send("PTTL", keys[0]);
        if (left > 0) {
          await send("PERSIST", keys[0]);
          expiries.set(keys[0], Date.now() + Math.ceil(left / stepMs) * stepMs);
        }
        return answer;
      },
    }),
    evalsha: async () => {
      throw new Error("NOSCRIPT"); // so that the library sends the script
    },
    // only Upstash knows the flag in the first line
    eval: (script, keys, args) => send("EVAL", script.replace(/^#!.*\n/, "\n"), keys.length, ...keys, ...args),
    get: (key) => send("GET", key),
    set: (key, value) => send("SET", key, value),
    del: (key) => send("DEL", key),
    send,
  };
  const stop = async () => {
    socket.destroy();
    await stopServer();
  };
  return { client, path, stop };
}

/** A function that sends a command and returns its answer. Commands are answered in order. */
function sender(socket) {
  const waiting = [];
  let bytes = Buffer.alloc(0);
  socket.on("data", (data) => {
    bytes = Buffer.concat([bytes, data]);
    for (let found = parse(bytes, 0); found !== undefined; found = parse(bytes, 0)) {
      bytes = bytes.subarray(found.end);
      const { resolve, reject } = waiting.shift();
      if (found.value instanceof Error) reject(found.value);
      else resolve(found.value);
    }
  });
  return (...words) => new Promise((resolve, reject) => {
    waiting.push({ resolve, reject });
    const each = words.map((word) => `$${Buffer.byteLength(String(word))}\r\n${word}\r\n`);
    socket.write(`*${words.length}\r\n${each.join("")}`);
  });
}

/** The value of RESP at a place, and where it ends; `undefined` if it is not complete. */
function parse(bytes, at) {
  const lineEnd = bytes.indexOf("\r\n", at);
  if (lineEnd < 0) return undefined;
  const line = bytes.toString("utf8", at + 1, lineEnd);
  const end = lineEnd + 2;
  switch (String.fromCharCode(bytes[at])) {
    case "+": return { value: line, end };
    case "-": return { value: new Error(line), end };
    case ":": return { value: Number(line), end };
    case "$": {
      const length = Number(line);
      if (length < 0) return { value: null, end };
      if (bytes.length < end + length + 2) return undefined;
      return { value: bytes.toString("utf8", end, end + length), end: end + length + 2 };
    }
    default: return parseArray(bytes, Number(line), end);
  }
}

function parseArray(bytes, length, start) {
  const value = [];
  let end = start;
  while (value.length < length) {
    const found = parse(bytes, end);
    if (found === undefined) return undefined;
    value.push(found.value);
    end = found.end;
  }
  return { value: length < 0 ? null : value, end };
}
