/** What a key has left. Promises are resolved and rejected with it. */
export class RateLimiterRes {
  remainingPoints;
  /** Milliseconds until the window ends; -1 if it never does. */
  msBeforeNext;
  consumedPoints;
  #isFirstInDuration = false;

  constructor(remainingPoints = 0, msBeforeNext = 0, consumedPoints = 0, isFirstInDuration = false) {
    this.remainingPoints = remainingPoints;
    this.msBeforeNext = msBeforeNext;
    this.consumedPoints = consumedPoints;
    this.isFirstInDuration = isFirstInDuration;
  }

  get isFirstInDuration() {
    return this.#isFirstInDuration;
  }

  set isFirstInDuration(isFirst) {
    this.#isFirstInDuration = Boolean(isFirst);
  }

  toJSON() {
    const { remainingPoints, msBeforeNext, consumedPoints, isFirstInDuration } = this;
    return { remainingPoints, msBeforeNext, consumedPoints, isFirstInDuration };
  }

  toString() {
    return JSON.stringify(this);
  }

  [Symbol.for("nodejs.util.inspect.custom")]() {
    return this.toJSON();
  }
}
