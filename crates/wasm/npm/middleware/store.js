/** The states of a limiter in the memory of this process, behind the calls that every store has. */
export class MemoryStore {
  #limiter;

  constructor(limiter) {
    this.#limiter = limiter;
  }

  async check(key, options) {
    return this.#limiter.admit(key, options);
  }

  /** Returns whether the lease was live. */
  async renew(key, lease) {
    return this.#limiter.renew(key, lease).live ?? false;
  }

  async release(key, lease) {
    this.#limiter.release(key, lease);
  }
}
