/** What a key has left. Promises are resolved and rejected with it. */
export class RateLimiterRes {
  remainingPoints;
  /** Milliseconds until the window ends; -1 if it never does. */
  msBeforeNext;
  consumedPoints;
  isFirstInDuration;

  constructor(remainingPoints = 0, msBeforeNext = 0, consumedPoints = 0, isFirstInDuration = false) {
    this.remainingPoints = remainingPoints;
    this.msBeforeNext = msBeforeNext;
    this.consumedPoints = consumedPoints;
    this.isFirstInDuration = Boolean(isFirstInDuration);
  }

  toJSON() {
    return { ...this };
  }

  toString() {
    return JSON.stringify(this);
  }
}
