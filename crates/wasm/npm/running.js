// Calls a function while a lease is held.
import { coded, define, ownField } from "./errors.js";
import { idleTimer } from "./time.js";

/** @typedef {{ allowed: boolean, lease?: string, live?: boolean, degraded?: string, wouldAllow?: boolean }} Said */
/** @typedef {Said & { renew: () => Said | Promise<Said>, [Symbol.asyncDispose](): Promise<void> }} Held */

/**
 * Calls `fn` if the request was granted, renews the lease meanwhile, and then releases it. Adds what `fn` returned to the grant.
 *
 * @template {Held} G
 * @param {G} grant
 * @param {number} renewEveryUs a third of the time to live
 * @param {(signal: AbortSignal) => unknown} fn
 */
export async function running(grant, renewEveryUs, fn) {
  if (!grant.allowed) return grant;
  const lost = new AbortController();
  const hold = new Holding(grant, renewEveryUs / 1000, lost);
  try {
    define(grant, "value", await fn(lost.signal));
    return grant;
  } finally {
    hold.end();
    await grant[/** @type {typeof Symbol.asyncDispose} */ (Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose"))]();
  }
}

/** A lease that is renewed. */
class Holding {
  #grant;
  #everyMs;
  #lost;
  /** Whether there is a lease to lose: a request that passes in shadow, or while Redis is away, may have none. */
  #isHeld;
  #isOver = false;
  /** @type {any} */
  #renewal;
  /** @type {any} the timer of the end of a lease that nobody renews */
  #end;

  /** @param {Held} grant @param {number} everyMs @param {AbortController} lost */
  constructor(grant, everyMs, lost) {
    this.#grant = grant;
    this.#everyMs = everyMs;
    this.#lost = lost;
    this.#isHeld = ownField(grant, "wouldAllow") !== false && ownField(grant, "degraded") === undefined;
    if (everyMs > 0 && ownField(grant, "lease") !== undefined) this.#live(Date.now());
  }

  end() {
    this.#isOver = true;
    clearTimeout(this.#renewal);
    clearTimeout(this.#end);
  }

  /**
   * The lease is live, and lasts for its time to live from this time on.
   *
   * @type {(askedAt: number) => void}
   */
  #live(askedAt) {
    clearTimeout(this.#end);
    this.#end = idleTimer(() => this.#lose(), 3 * this.#everyMs - (Date.now() - askedAt));
    this.#renewLater();
  }

  #renewLater() {
    this.#renewal = idleTimer(() => this.#renew(), this.#everyMs);
  }

  async #renew() {
    const askedAt = Date.now();
    /** @type {Partial<Said>} */
    let said;
    try {
      said = await this.#grant.renew();
    } catch {
      said = { degraded: "an error" }; // of a limiter that was freed, or whose policy has no leases any more
    }
    if (this.#isOver) return;
    if (ownField(said, "live")) {
      this.#isHeld = true;
      this.#live(askedAt);
    } else if (ownField(said, "degraded") !== undefined) {
      this.#renewLater(); // the lease may be live until its time to live has passed
    } else {
      this.#lose();
    }
  }

  #lose() {
    this.end();
    if (!this.#isHeld) return;
    this.#lost.abort(coded("LEASE_LOST", "the lease has ended, because it could not be renewed in time: others may hold its place"));
  }
}
