/**
 * Exact rate limiting in a Cloudflare Worker: the states are in Durable Objects of the Worker itself.
 *
 * @module tidegate/durable-objects
 */

import type * as memory from "tidegate";
import type { FarLimiter } from "tidegate/redis";

export type { ErrorCode, Limit, LimitAnswer, Policy, PolicyFile, Reservations, Span, TomlPolicy } from "tidegate";
export type { Answer, Committed, Decision, Degraded, Explanation, Grant, HeldAnswer, HeldGrant, Ran, Reservation } from "tidegate/redis";
export { ArgumentError, FullError, LimiterError, PolicyError } from "tidegate";

/** The Durable Object that keeps the states of keys. The Worker exports it, and `wrangler.toml` binds it. */
export class Keys {
  /** Called by the runtime. */
  constructor(state: unknown, env: unknown);
}

/** The binding of the class `Keys`, as the runtime gives it in `env`. */
export interface Objects {
  /** The object of this name. */
  getByName(name: string): unknown;
}

/** The options of a limiter on Durable Objects. */
export interface DurableLimiterOptions {
  /** The name of a policy in the policy file. Not needed if the file has only one policy. */
  policy?: string;
  /**
   * What the names of the objects begin with. Two limiters whose policies have no names, or the same name, need different prefixes
   * to count apart. Default: none.
   */
  prefix?: string;
  /** How long an object may take to answer, from 1 ms to 1 h. Then the policy's `on_error` decides. Default: `"5s"`. */
  deadline?: memory.Span;
}

/**
 * Limits many keys by one policy, together with all isolates of the Worker. Make it once in an isolate, because it remembers what the
 * policy lets an isolate answer by itself.
 *
 * The methods are those of `Limiter` in `tidegate`, and return promises. What throws there rejects here. What a request asks at once
 * shares one call to each object. If an object cannot be asked, the policy's `on_error` decides, and the answer has `degraded`.
 * Objects decide at their own time: an option `now` is an error `INVALID_NOW`, unless the variable `TIDEGATE_TRUST_CALLER_TIME` of the
 * Worker is `true`, as in a test.
 *
 * An answer that needs no object comes in a microtask. So a loop that does nothing but ask lets no other request of its isolate go on.
 */
export class DurableLimiter {
  /**
   * @param policy one policy or a policy file: as an object, as a text in JSON, or as `toml(text)` of `tidegate/toml`
   * @param objects the binding of the class `Keys`
   * @throws {PolicyError} with the place of the error
   * @throws {ArgumentError} `INVALID_OPTION` for anything but a binding of Durable Objects
   */
  constructor(policy: memory.AnyPolicy, objects: Objects, options?: DurableLimiterOptions);
}

export interface DurableLimiter extends FarLimiter {}

export default DurableLimiter;
