// The clients of Redis, which are found by their shape. Each sends words as they are, and returns bytes as a `Buffer`, unless it carries
// texts alone.
import { Buffer } from "node:buffer";

import { coded } from "../errors.js";
import { kindOf } from "../middleware/kind.js";

/** @typedef {(words: Buffer[]) => Promise<unknown>} Send sends a command, and returns the reply or throws */
/**
 * @typedef {object} Client
 * @property {Send} send
 * @property {(slot: number) => string} [masterOf] which master of a Cluster has a slot
 * @property {boolean} [hasTexts] whether it carries texts alone
 */

/** The types of RESP whose values are bytes: blobs, simple texts and verbatim texts. */
const AS_BYTES = { typeMapping: { 36: Buffer, 43: Buffer, 61: Buffer } };

/**
 * How this client sends a command.
 *
 * @type {(client: any) => Client}
 */
export function clientOf(client) {
  if (typeof client?.callBuffer === "function") return ioredis(client);
  if (typeof client?.sendCommand === "function" && typeof client.withTypeMapping === "function") return nodeRedis(client);
  if (typeof client?.evalsha === "function" && typeof client.eval === "function") return upstash(client);
  throw notAClient(client === null || typeof client !== "object" ? kindOf(client) : "another object");
}

/** @type {(client: any) => Client} */
function ioredis(client) {
  /** @type {Send} */
  const send = async ([command, ...words]) => client.callBuffer(command.toString(), words);
  return client.isCluster === true ? { send, masterOf: (slot) => client.slots[slot]?.[0] ?? "" } : { send };
}

/**
 * A client, a client of a Cluster or one of Sentinel. They differ in what they take before the words.
 *
 * @type {(client: any) => Client}
 */
function nodeRedis(client) {
  if (Array.isArray(client.slots)) {
    return {
      send: async (words) => client.sendCommand(words[FIRST_NAME], false, words, AS_BYTES),
      masterOf: (slot) => client.slots[slot]?.master?.id ?? "",
    };
  }
  if (typeof client.getMasterNode === "function") return { send: async (words) => client.sendCommand(false, words, AS_BYTES) };
  return { send: async (words) => client.sendCommand(words, AS_BYTES) };
}

/**
 * A client over HTTP. It sends and returns JSON, which has no bytes.
 *
 * @type {(client: any) => Client}
 */
function upstash(client) {
  return {
    hasTexts: true,
    async send(words) {
      const [command, script, count, ...rest] = words.map(String);
      const names = rest.splice(0, Number(count));
      try {
        return await (command === "EVAL" ? client.eval(script, names, rest) : client.evalsha(script, names, rest));
      } catch (/** @type {any} */ error) {
        throw new Error(String(error?.message ?? error).replace(AROUND_ERROR, ""));
      }
    },
  };
}

/** What the client writes before and after an error of Redis. The command has keys. */
const AROUND_ERROR = /^Command [^:]*failed: |, command was: .*$/gs;

/** The place of the first name in a call of a script. In a Cluster there is no other command. */
const FIRST_NAME = 3;

/** @type {(found: string) => Error} */
const notAClient = (found) => coded("INVALID_OPTION", `\`client\`: expected a client of \`ioredis\`, of \`redis\` 5 or newer, or of \`@upstash/redis\`; found ${found}`);
