// Compiled, never run: what must be accepted, and what must not.
import { Limiter } from "tidegate";
import type { Decision, ErrorCode, Limit, LimiterError, Policy, PolicyError, PolicyFile } from "tidegate";

const limit: Limit = { algorithm: "token_bucket", capacity: 2, rate: "3/s" };
const policy: Policy = { limits: [limit], cost: { header: "x-cost" } };
const file: PolicyFile = { policies: { api: policy } };

const limiter = new Limiter(policy, { maxKeys: 10 });
new Limiter(file, { policy: "api" });
new Limiter("limits = []");

const decision: Decision = limiter.check("key", 1, 0);
const numbers: number[] = [decision.limit, decision.remaining, decision.retryAfterUs, decision.resetAfterUs];
const allowed: boolean = limiter.peek("key", 0).allowed && limiter.check("key").allowed;
limiter.sweep();
limiter.sweep(numbers.length + limiter.size);
limiter.free();
limiter[Symbol.dispose]();

try {
  new Limiter("");
} catch (error) {
  const { code } = error as LimiterError;
  const known: ErrorCode = code;
  if (known === "INVALID_POLICY") {
    const { line, column, path } = error as PolicyError;
    console.log(line + column, path.length, allowed);
  }
}

// @ts-expect-error a key is needed
limiter.check();
// @ts-expect-error a key is a string
limiter.check(5);
// @ts-expect-error numbers are plain
limiter.check("key", 1n);
// @ts-expect-error decisions are frozen
decision.allowed = true;
// @ts-expect-error the size is not set
limiter.size = 5;
// @ts-expect-error a bucket has no period
new Limiter({ limits: [{ algorithm: "token_bucket", capacity: 2, period: "1s" }] });
// @ts-expect-error there is no such algorithm
new Limiter({ limits: [{ algorithm: "leaky_bucket", capacity: 2, rate: "1/s" }] });
// @ts-expect-error there is no such option
new Limiter(policy, { maxkeys: 5 });
