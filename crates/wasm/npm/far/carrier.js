// What sends the questions of a limiter to its store: each store has a carrier of its own.

/**
 * Sends what a limiter asks.
 *
 * @typedef {object} Carrier
 * @property {boolean} isBusy
 * @property {boolean} isOver whether WebAssembly has begun anew since the carrier was made
 * @property {() => number} at microseconds by a clock that never goes back
 * @property {(token: number, settled: Promise<any>, waiter: unknown) => unknown} wake is told of an operation that waits
 * @property {(go: () => void) => void} [answered] is told of an operation whose answer needed no store, and lets it go on
 * @property {() => void} [requireTime] throws if no caller may say the time of an operation
 * @property {(error: unknown) => void} [recover] lets WebAssembly begin anew if it has ended by this error
 * @property {() => void} [giveUp] ends what waits without an answer
 * @property {() => void} [drain] lets the store take back what the limiter holds
 * @property {() => void} [end] ends its timers
 */
/**
 * What a carrier tells its limiter.
 *
 * @typedef {object} Heard
 * @property {() => void} answers some answers have come
 * @property {(token: number, waiter: unknown) => boolean} waits whether the operation of this token still waits
 * @property {(error: unknown) => void} failed WebAssembly has ended for ever
 * @property {() => void} ended WebAssembly has begun anew
 */

export {};
