/**
 * Middleware for handlers that take a `Request` and return a `Response`.
 * It takes a limiter of `tidegate`, `tidegate/redis`, `tidegate/durable-objects` or `tidegate/remote`.
 *
 * @module tidegate/fetch
 */

import type { Granted, Limiter, Limiters, LimitersOf, MiddlewareOptions, Store } from "./options.js";

export type { Admission, AnyLimiter, CountIf, KeyOf, Limiters, MiddlewareOptions, OlderHeaders, Store, Term, Terms } from "./options.js";
export type { Granted, LimitersOf, Told } from "./options.js";

/** A request as its handler gets it. */
export type Limited<Request> = Request & {
  /** What the request was granted; absent if the request was skipped. */
  rateLimit?: Granted;
};

/** A class of the runtime, for a handler whose types say nothing of it. */
type OfRuntime<Name extends string> = typeof globalThis extends { [name in Name]: { prototype: infer Made } } ? Made : any;

/**
 * The handler behind a limiter. A request has no address by itself, so `options.ip` must say where it is if keys are
 * addresses.
 */
export function rateLimit<Request = OfRuntime<"Request">, Rest extends unknown[] = unknown[], Response = OfRuntime<"Response">>(
  limiter: Limiters | LimitersOf<[request: Request, ...rest: Rest]>,
  handler: (request: Limited<Request>, ...rest: Rest) => Response | Promise<Response>,
  options?: MiddlewareOptions<[request: Request, ...rest: Rest]>,
): (request: Request, ...rest: Rest) => Promise<Response>;
export default rateLimit;

/** The states of a limiter in the memory of this process, behind the calls that every store has. */
export class MemoryStore implements Store {
  constructor(limiter: Limiter);
  check: Store["check"];
  renew: Store["renew"];
  release: Store["release"];
  commit: NonNullable<Store["commit"]>;
  giveBack: NonNullable<Store["giveBack"]>;
}
