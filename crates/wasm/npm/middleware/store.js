/** The states of a limiter, behind the calls that every store has. */
export class MemoryStore {
  #limiter;

  /** @param {any} limiter a `Limiter`, or a `RemoteLimiter` whose calls return promises */
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
    return (await this.#limiter.renew(key, lease)).live ?? false;
  }

  /** @type {import("./options.js").Store["release"]} */
  async release(key, lease) {
    await this.#limiter.release(key, lease);
  }

  /** @type {NonNullable<import("./options.js").Store["commit"]>} */
  async commit(key, id, actual) {
    await this.#limiter.commit(key, id, actual);
  }

  /** @type {NonNullable<import("./options.js").Store["giveBack"]>} */
  async giveBack(key, admission) {
    await this.#limiter.giveBack(key, admission);
  }
}
