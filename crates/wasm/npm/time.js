// Time as JavaScript has it, in the units of WebAssembly, which counts microseconds. Timers count milliseconds.

/** Microseconds since the Unix epoch. */
export const clock = () => Math.floor(Date.now() * 1000);

/** Microseconds by a clock that never goes back. */
export const steadyClock = () => Math.floor(performance.now() * 1000);

/**
 * Milliseconds, rounded up: a timer must not be early.
 *
 * @type {(us: number) => number}
 */
export const milliseconds = (us) => Math.ceil(us / 1000);

/**
 * Milliseconds from a time to another one.
 *
 * @type {(us: number, untilUs: number) => number}
 */
export const millisecondsUntil = (us, untilUs) => milliseconds(untilUs - us);

const DAY_MS = 86_400_000;

/**
 * Whether a time is that of the clock, in milliseconds. Clocks of tests begin near 0, so only what is close to the real clock is.
 *
 * @type {(time: number) => boolean}
 */
export const isInMilliseconds = (time) => time >= 1e12 && time <= 1e13 && Math.abs(time - Date.now()) <= DAY_MS;

const LONGEST_TIMER_MS = 2 ** 31 - 1;

/**
 * A timer. What is longer than 24 days ends after 24 days, because timers know no more.
 *
 * @type {(call: () => void, ms: number) => any}
 */
export const timer = (call, ms) => setTimeout(call, Math.min(Math.max(1, ms), LONGEST_TIMER_MS));

/**
 * A timer that keeps no process alive.
 *
 * @type {(call: () => void, ms: number) => any} Node has `unref` here, browsers have not
 */
export function idleTimer(call, ms) {
  const idle = timer(call, ms);
  idle.unref?.();
  return idle;
}

/**
 * If the event loop was blocked, the answer may have come in time: what the sockets hold is read first.
 *
 * @type {(act: () => void) => unknown}
 */
export const afterReads = /** @type {any} */ (globalThis).setImmediate ?? ((act) => setTimeout(act, 0));
