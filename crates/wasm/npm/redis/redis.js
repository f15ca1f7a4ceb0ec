// The limiter whose states are in Redis.
import { NativeAuthority as Native } from "#native";

import { Carrier } from "./carrier.js";
import { clientOf } from "./client.js";
import { FarLimiter, farOptions } from "./limiter.js";

/** @import * as declared from "../redis.js" */

export class RedisLimiter extends FarLimiter {
  /** @param {import("../index.js").AnyPolicy} policy @param {any} client @param {declared.RedisLimiterOptions} [options] */
  constructor(policy, client, options = {}) {
    const sender = clientOf(client);
    const { name, prefix, deadlineUs } = farOptions(options, "250ms");
    const [isCluster, hasTexts] = [sender.masterOf !== undefined, sender.hasTexts === true];
    /** @type {import("./limiter.js").Make} */
    const make = (text, isWritten) => new Native(text, isWritten, name, prefix, deadlineUs, isCluster, hasTexts);
    super(policy, make, (native, heard) => new Carrier(native, sender, deadlineUs, heard));
  }
}
