// The limiter whose states are in Durable Objects of the Worker that it runs in.
import { NativeAuthority as Native } from "#native";

import { attend } from "../attending.js";
import { FarLimiter } from "../far/limiter.js";
import { farOptions } from "../far/options.js";
import { wrongType } from "../input.js";
import { ObjectsCarrier } from "./carrier.js";

/** @import * as declared from "../durable-objects.js" */

export class DurableLimiter extends FarLimiter {
  /** @param {import("../index.js").AnyPolicy} policy @param {any} objects @param {declared.DurableLimiterOptions} [options] */
  constructor(policy, objects, options = {}) {
    if (typeof objects?.getByName !== "function") throw wrongType("objects", "INVALID_OPTION", objects, "a binding of Durable Objects, such as `env.KEYS`");
    const { name, prefix, deadlineUs } = farOptions(options, "5s");
    /** @type {import("../far/desk.js").Make} */
    const make = (text, isWritten) => new Native(text, isWritten, name, prefix, deadlineUs, undefined, false);
    super(policy, make, (native, heard) => new ObjectsCarrier(native, objects, deadlineUs, heard), { attend, isUntimed: true });
  }
}
