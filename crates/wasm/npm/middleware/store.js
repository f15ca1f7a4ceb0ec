/** The states of a limiter, behind the calls that every store has. */
export class MemoryStore {
  #limiter;

  /** @param {any} limiter a `Limiter`, or one whose calls return promises */
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
    const answer = certain(await this.#limiter.renew(key, lease));
    return Object.hasOwn(answer, "live") && answer.live;
  }

  /** @type {import("./options.js").Store["release"]} */
  async release(key, lease) {
    certain(await this.#limiter.release(key, lease));
  }

  /** @type {NonNullable<import("./options.js").Store["commit"]>} */
  async commit(key, id, actual) {
    certain(await this.#limiter.commit(key, id, actual));
  }

  /** @type {NonNullable<import("./options.js").Store["giveBack"]>} */
  async giveBack(key, admission) {
    await this.#limiter.giveBack(key, admission);
  }
}

/**
 * An answer of somebody who knows: a lease must not look lost because nobody answered.
 *
 * @type {(answer: any) => any}
 */
function certain(answer) {
  if (Object.hasOwn(answer, "degraded")) throw undecided(answer.degraded);
  return answer;
}

/** @type {(why: string) => Error} */
export const undecided = (why) => Object.assign(new Error(why), { code: "UNAVAILABLE" });
