// WebAssembly may end by a panic, and then begins anew: what it remembered is gone, and what was stored is not.
import { __wbg_reset_state, watch } from "./build/index.js";

/** How many times WebAssembly began anew. Numbers that an earlier instance gave mean something else in a later one. */
export let instance = 0;

/** What is called when WebAssembly has ended: functions that let others go on. */
export const whenEnded = new Set();

/** Lets WebAssembly begin anew. WebAssembly itself calls this at its end, because a panic in a future reaches no caller. */
export function ended() {
  __wbg_reset_state();
  watch();
  instance += 1;
  for (const call of [...whenEnded]) call();
}

/** Does the same if this error has ended the instance `began` unheard: there was no memory for a text, or for a new instance. */
export function recover(error, began) {
  const hasEnded =
    error instanceof WebAssembly.RuntimeError || error instanceof RangeError || error?.message === "Module terminated";
  if (hasEnded && began === instance) ended();
}

/**
 * The result of a promise of WebAssembly, which is never settled if WebAssembly ends before: then it is `undefined`. `begin`
 * gets a function that settles it, too.
 */
export async function outlive(begin) {
  const { promise, resolve } = Promise.withResolvers();
  whenEnded.add(resolve);
  try {
    return await Promise.race([begin(resolve), promise]);
  } finally {
    whenEnded.delete(resolve);
  }
}
