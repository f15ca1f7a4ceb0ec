// What the Worker uses of the runtime, for the type checker.

declare module "cloudflare:workers" {
  /** The base of a class of objects with methods for RPC. */
  export class DurableObject {
    constructor(state: any, env: any);
    readonly ctx: any;
    readonly env: any;
  }

  /** The base of a class with methods for other Workers. */
  export class WorkerEntrypoint {
    constructor(context: any, env: any);
    readonly ctx: any;
    readonly env: any;
  }
}

declare module "*.wasm" {
  const module: WebAssembly.Module;
  export default module;
}

declare module "*.toml" {
  const text: string;
  export default text;
}

interface Scheduler {
  wait(ms: number): Promise<void>;
}

/** The text of the deployed policy file, which WebAssembly reads at the first request. */
declare var TIDEGATE_POLICIES: string;

interface Request {
  /** What Cloudflare tells of a client. */
  readonly cf?: { readonly country?: string };
}
