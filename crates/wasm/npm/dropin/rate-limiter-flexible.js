// The classes of rate-limiter-flexible that need no server.
import { RateLimiterAbstract, RateLimiterCompatibleAbstract } from "./flexible/abstract.js";
import { RateLimiterMemory } from "./flexible/memory.js";
import { RateLimiterQueue, RateLimiterQueueError } from "./flexible/queue.js";
import { RateLimiterRes } from "./flexible/result.js";
import { RLWrapperTimeouts } from "./flexible/timeouts.js";
import { BurstyRateLimiter, RateLimiterUnion, RLWrapperBlackAndWhite } from "./flexible/wrappers.js";

const classes = {
  BurstyRateLimiter, RateLimiterAbstract, RateLimiterCompatibleAbstract, RateLimiterMemory, RateLimiterQueue,
  RateLimiterQueueError, RateLimiterRes, RateLimiterUnion, RLWrapperBlackAndWhite, RLWrapperTimeouts,
};

export {
  BurstyRateLimiter, RateLimiterAbstract, RateLimiterCompatibleAbstract, RateLimiterMemory, RateLimiterQueue,
  RateLimiterQueueError, RateLimiterRes, RateLimiterUnion, RLWrapperBlackAndWhite, RLWrapperTimeouts,
};
/** As Node imports theirs, which is CommonJS. */
export default classes;
