// Compiled by TypeScript from 5.2 on, never run: what frees itself at the end of a block.
import { expectTypeOf } from "expect-type";
import { Limiter, Reporter } from "tidegate";
import type { Grant } from "tidegate";

async function run() {
  using limiter = new Limiter("limits = []");
  using reporter = new Reporter({ limit: "1/s" });
  using grant = limiter.decide("key");
  await using lease = limiter.acquire("key");
  await using waited = await limiter.waitFor("key");
  expectTypeOf(grant).toEqualTypeOf<Grant>();
  expectTypeOf(lease.lease).toEqualTypeOf<string>();
  expectTypeOf(waited).toEqualTypeOf<Grant>();
  // @ts-expect-error a decision holds nothing
  using decision = limiter.check("key");
  console.log(reporter, decision);
}
void run;
