// WebAssembly may end by a panic, and then begins anew: what it remembered is gone, and what was stored is not.
import { __wbg_reset_state } from "./build/index.js";

/** How many times WebAssembly began anew. Numbers that an earlier instance gave mean something else in a later one. */
export let instance = 0;

/** What must be done when WebAssembly ends. */
const whenEnded = new Set();

/** Does something each time WebAssembly has ended. */
export const onEnd = (call) => whenEnded.add(call);

/** Lets WebAssembly begin anew if this error has ended it. The first error after a panic may be another one than its own. */
export function recover(error) {
  const hasEnded =
    error instanceof WebAssembly.RuntimeError || error instanceof RangeError || error?.message === "Module terminated";
  if (!hasEnded) return;
  __wbg_reset_state();
  instance += 1;
  for (const call of [...whenEnded]) call();
}

/** Called by a panic, because one in a future of WebAssembly reaches no caller. */
export function panicked() {
  const ended = instance;
  queueMicrotask(() => ended === instance && recover(new WebAssembly.RuntimeError("a panic")));
}

/** The result of a promise of WebAssembly, which is never settled if WebAssembly ends before: then it is `undefined`. */
export async function outlive(begin) {
  const { promise, resolve } = Promise.withResolvers();
  whenEnded.add(resolve);
  try {
    return await Promise.race([begin(), promise]);
  } catch (error) {
    recover(error);
    throw error;
  } finally {
    whenEnded.delete(resolve);
  }
}

/** Closes the ends of a WebSocket if WebAssembly, which carries their messages, ends before them. */
export async function guard(closed, ...ends) {
  if (await outlive(() => closed)) return;
  for (const end of ends) {
    try {
      end.close(1011, "");
    } catch {
      // it has closed before
    }
  }
}
