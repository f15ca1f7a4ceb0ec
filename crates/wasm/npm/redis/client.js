// The clients of Redis, which are found by their shape. Each sends words as they are, and returns bytes as a `Buffer`.
import { Buffer } from "node:buffer";

import { coded } from "../errors.js";
import { kindOf } from "../input.js";

/** @typedef {(words: Buffer[]) => Promise<unknown>} Send sends a command, and returns the reply or throws */

/** The types of RESP whose values are bytes: blobs, simple texts and verbatim texts. */
const AS_BYTES = { typeMapping: { 36: Buffer, 43: Buffer, 61: Buffer } };

/**
 * How this client sends a command.
 *
 * @type {(client: any) => Send}
 */
export function senderOf(client) {
  if (client?.isCluster === true) throw notAClient(OF_MANY);
  if (typeof client?.callBuffer === "function") {
    return async ([command, ...words]) => client.callBuffer(command.toString(), words); // ioredis
  }
  if (typeof client?.sendCommand === "function" && typeof client.withTypeMapping === "function") {
    if (client.sendCommand.length > 2) throw notAClient(OF_MANY); // it takes more than the words and the options
    return async (words) => client.sendCommand(words, AS_BYTES); // redis
  }
  throw notAClient(client === null || typeof client !== "object" ? kindOf(client) : "another object");
}

const OF_MANY = "a client of a Cluster or of Sentinel, which is not supported";

/** @type {(found: string) => Error} */
const notAClient = (found) => coded("INVALID_OPTION", `\`client\`: expected a client of \`ioredis\`, or of \`redis\` 5 or newer; found ${found}`);
