// What the build gives the scripts, and what TypeScript does not know. No part of the package.

declare module "#module" {
  const bytes: Uint8Array<ArrayBuffer>;
  export default bytes;
}

declare module "#text" {
  const text: string;
  export default text;
}

declare module "#order" {
  export const length: number;
  export const order: number[];
  export const stamp: string;
}

/** What the limiter on Durable Objects uses of the Worker. */
declare module "#worker/keys" {
  export function keysBy(learn: (questions: string, env: any, policy: string | undefined) => unknown): new (state: unknown, env: unknown) => object;
}

declare module "#worker/log" {
  export function logError(what: string, cause?: unknown): void;
}

declare module "#worker/recovery" {
  export const instance: number;
  export const whenEnded: Set<() => void>;
  export function recover(error: unknown, began: number): void;
}

/** What it uses of the runtime. */
declare module "cloudflare:workers" {
  export const env: any;
  export function waitUntil(promise: Promise<unknown>): void;
}

/** What the package uses of Node's bytes. */
declare module "node:buffer" {
  export class Buffer extends Uint8Array<ArrayBuffer> {
    static from(bytes: ArrayBufferLike, offset: number, length: number): Buffer;
    static from(text: string | Uint8Array): Buffer;
    static concat(parts: Uint8Array[]): Buffer;
    subarray(from: number, to: number): Buffer;
    toString(encoding?: "latin1", from?: number, to?: number): string;
  }
}

/** What the command uses of Node. */
declare module "node:fs" {
  export function readFileSync(file: string, encoding: "utf8"): string;
}

declare module "node:util" {
  export function parseArgs(given: object): { values: any; positionals: string[] };
}

declare const process: {
  argv: string[];
  exitCode?: number;
  exit(code: number): never;
  stdout: { on(event: "error", listener: () => void): void };
};

declare module "*.wasm" {
  const module: WebAssembly.Module;
  export default module;
}

declare module "*.wasm?module" {
  const module: WebAssembly.Module;
  export default module;
}

declare module "*.toml" {
  const text: string;
  export default text;
}

/** A descriptor that inherits nothing, whatever another library has put on `Object.prototype`. */
interface PropertyDescriptor {
  __proto__?: null;
}
