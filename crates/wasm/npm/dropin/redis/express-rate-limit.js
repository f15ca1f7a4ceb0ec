// The stores for express-rate-limit, with one in Redis.
import { defineAbsent, fieldsOf, invalid } from "../input.js";
import { CountingStore, knownOptions } from "../store.js";
import { RedisCounters, requireClient } from "./counters.js";

/** @import * as declared from "./express-rate-limit.js" */

export { MemoryStore } from "../express-rate-limit.js";

/** Counts the hits of each client in Redis, for all processes. */
export class RedisStore extends CountingStore {
  /** Other stores may count the same keys. */
  localKeys = false;
  #client;
  /** @type {RedisCounters | undefined} */
  #counters;

  /** @param {declared.RedisStoreOptions} options */
  constructor(options) {
    const { sendCommand, resetExpiryOnChange } = fieldsOf(options, ["sendCommand", "resetExpiryOnChange"]);
    if (sendCommand !== undefined) throw invalid("sendCommand", "the client itself, in the option `client`", sendCommand);
    if (resetExpiryOnChange !== undefined) throw invalid("resetExpiryOnChange", A_SPAN, resetExpiryOnChange);
    const { client, prefix = "rl:" } = knownOptions(options, ["client", "prefix"]);
    requireClient("client", client);
    super(prefix, () => this.#counters);
    this.#client = client;
  }

  /** @type {declared.RedisStore["init"]} */
  init(options) {
    super.init(options);
    this.#counters = new RedisCounters("express-rate-limit", this.#client, Math.floor(this.windowMs));
  }
}

const A_SPAN = "no such option, because a window lasts its span (`tidegate/express` with a `sliding_log` and `count_denied` refuses who goes on)";

defineAbsent(RedisStore.prototype, { resetAll: "because Redis would look at each of its keys: use `resetKey`, or another `prefix`" }, { isAsync: true });

export default RedisStore;
