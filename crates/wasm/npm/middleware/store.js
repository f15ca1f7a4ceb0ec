/** The states of a limiter in the memory of this process, behind the calls that every store has. */
export class MemoryStore {
  #limiter;

  /** @param {Pick<import("tidegate").Limiter, "admit" | "renew" | "release" | "commit" | "giveBack">} limiter */
  constructor(limiter) {
    this.#limiter = limiter;
  }

  /** @type {import("./options.js").Store["check"]} */
  async check(key, options) {
    return this.#limiter.admit(key, options);
  }

  /**
   * Returns whether the lease was live.
   *
   * @type {import("./options.js").Store["renew"]}
   */
  async renew(key, lease) {
    return this.#limiter.renew(key, lease).live ?? false;
  }

  /** @type {import("./options.js").Store["release"]} */
  async release(key, lease) {
    this.#limiter.release(key, lease);
  }

  /** @type {NonNullable<import("./options.js").Store["commit"]>} */
  async commit(key, id, actual) {
    this.#limiter.commit(key, id, actual);
  }

  /** @type {NonNullable<import("./options.js").Store["giveBack"]>} */
  async giveBack(key, admission) {
    this.#limiter.giveBack(key, admission);
  }
}
