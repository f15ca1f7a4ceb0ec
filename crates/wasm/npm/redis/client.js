// The clients of Redis, which are found by their shape. Each sends words as they are, texts of ASCII or bytes, and returns bytes as a
// `Buffer`, unless it carries texts alone.
import { Buffer } from "node:buffer";

import { coded } from "../errors.js";
import { kindOf } from "../middleware/kind.js";

/** @typedef {Buffer | string} Word */
/** @typedef {(words: Word[], slot: number) => Promise<unknown>} Send calls a script of names of a slot, and returns the reply or throws */
/**
 * @typedef {object} Client
 * @property {Send} send
 * @property {(slot: number) => number} [masterOf] the number of the master of a Cluster that has a slot; 0 if nobody knows
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
  /** @type {(to: any, words: Word[]) => Promise<unknown>} */
  const call = async (to, [command, ...words]) => to.callBuffer(String(command), words);
  if (client.isCluster !== true) return { send: (words) => call(client, words) };
  /** @type {(slot: number) => string | undefined} */
  const placeOf = (slot) => client.slots[slot]?.[0];
  return {
    masterOf: numbered(placeOf),
    async send(words, slot) {
      if (!isAcross(words)) return call(client, words);
      // the client would send a call without names to any node
      const master = client.nodes("master").find((/** @type {any} */ { options: { host, port } }) => `${host}:${port}` === placeOf(slot));
      if (master === undefined) throw new Error("the client has no such master any more");
      return call(master, withPrefix(words, client.options.keyPrefix));
    },
  };
}

/**
 * The names have the prefix that `ioredis` writes before names.
 *
 * @type {(words: Word[], prefix: Buffer | string | undefined) => Word[]}
 */
function withPrefix(words, prefix) {
  if (!prefix?.length) return words;
  const [first, count] = [firstName(words), Number(words[COUNT + 1])];
  return words.map((word, place) => (place >= first && place < first + count ? Buffer.concat([Buffer.from(prefix), Buffer.from(word)]) : word));
}

/**
 * A client, a client of a Cluster or one of Sentinel. They differ in what they take before the words.
 *
 * @type {(client: any) => Client}
 */
function nodeRedis(client) {
  if (Array.isArray(client.slots)) {
    return {
      send: async (words) => client.sendCommand(words[firstName(words)], false, words, AS_BYTES),
      masterOf: numbered((slot) => client.slots[slot]?.master?.id),
    };
  }
  if (typeof client.getMasterNode === "function") return { send: async (words) => client.sendCommand(false, words, AS_BYTES) };
  return { send: async (words) => client.sendCommand(words, AS_BYTES) };
}

/**
 * Gives each master a number of its own.
 *
 * @type {(masterOf: (slot: number) => string | undefined) => (slot: number) => number}
 */
function numbered(masterOf) {
  /** @type {Map<string, number>} */
  const numbers = new Map();
  return (slot) => {
    const master = masterOf(slot);
    if (master === undefined) return 0;
    const number = numbers.get(master) ?? numbers.size + 1;
    numbers.set(master, number);
    return number;
  };
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

/** The place of the number of names in a call of a script. */
const COUNT = 2;

/**
 * Whether a call is over several slots of a Cluster: then it has no names, and the values begin with the number of names and the names.
 *
 * @type {(words: Word[]) => boolean}
 */
const isAcross = (words) => String(words[COUNT]) === "0";

/**
 * The place of the first name in a call of a script.
 *
 * @type {(words: Word[]) => number}
 */
const firstName = (words) => COUNT + (isAcross(words) ? 2 : 1);

/**
 * A script that does nothing, on a name of this call: its answer says that the master is there.
 *
 * @type {(words: Word[]) => Word[]}
 */
export const questionFor = (words) => ["EVAL", "return 1", "1", words[firstName(words)]];

/** @type {(found: string) => Error} */
const notAClient = (found) => coded("INVALID_OPTION", `\`client\`: expected a client of \`ioredis\`, of \`redis\` 5 or newer, or of \`@upstash/redis\`; found ${found}`);
