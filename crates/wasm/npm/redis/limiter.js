// The limiter whose states are in Redis.
import { NativeAuthority as Native } from "#native";

import { FarLimiter } from "../far/limiter.js";
import { farOptions } from "../far/options.js";
import { RedisCarrier } from "./carrier.js";
import { clientOf } from "./client.js";

/** @import * as declared from "../redis.js" */

export class RedisLimiter extends FarLimiter {
  /** @param {import("../index.js").AnyPolicy} policy @param {any} client @param {declared.RedisLimiterOptions} [options] */
  constructor(policy, client, options = {}) {
    const sender = clientOf(client);
    const { name, prefix, deadlineUs } = farOptions(options, "250ms");
    const { masterOf, hasTexts = false } = sender;
    /** @type {import("../far/desk.js").Make} */
    const make = (text, isWritten) => new Native(text, isWritten, name, prefix, deadlineUs, masterOf, hasTexts);
    super(policy, make, (native, heard) => new RedisCarrier(native, sender, deadlineUs, heard));
  }
}
