// The tests compile this file and never run it. It says what `tidegate/worker` must accept, and what it must refuse.
import { expectTypeOf } from "expect-type";
import { Keys, Policies, Tidegate, tidegate } from "tidegate/worker";
import type { Check, Decision, Key, LimitDecision, OfGrant, Repeatable } from "tidegate/worker";

const handler = tidegate("[policies.api]");
expectTypeOf(handler.fetch).toEqualTypeOf<(request: Request, env: unknown, context: unknown) => Promise<Response>>();
expectTypeOf(Keys).toBeConstructibleWith({}, {});
expectTypeOf(Policies).toBeConstructibleWith({}, {});
expectTypeOf<keyof Tidegate>().toEqualTypeOf<"fetch" | "check" | "peek" | "acquire" | "renew" | "release" | "reserve" | "commit" | "refund">();
expectTypeOf<Tidegate["fetch"]>().toEqualTypeOf<(request: Request) => Promise<Response>>();
expectTypeOf<Tidegate["peek"]>().returns.toEqualTypeOf<Promise<Decision>>();
expectTypeOf<Tidegate["refund"]>().toEqualTypeOf<(unused: Key & Repeatable & { units: number } & (OfGrant | { granted_at_us?: never; granted?: never })) => Promise<Decision>>();
expectTypeOf<Omit<Decision, keyof LimitDecision>>().toEqualTypeOf<{
  policy: string; at_us: number; limits: LimitDecision[]; denied?: true; would_allow?: boolean; lease?: string; renew_every_us?: number; live?: boolean; factor?: number; degraded?: string;
  id?: string; reserved?: number; expires_at_us?: number; charged?: number; late?: boolean;
}>();

async function ask(binding: Tidegate): Promise<void> {
  const check: Check = { policy: "api", key: "user:42", cost: 2 };
  const decision = await binding.check(check);
  expectTypeOf(decision).toEqualTypeOf<Decision>();
  const batch = await binding.check({ checks: [check] });
  expectTypeOf(batch.decisions).toEqualTypeOf<Decision[]>();
  const together = await binding.check({ checks: [check], all_or_nothing: true });
  expectTypeOf(together.allowed).toEqualTypeOf<boolean>();
  expectTypeOf(together.decisions[0]?.returned).toEqualTypeOf<boolean | undefined>();
  await binding.refund({ policy: "api", key: "user:42", units: 1 });
  await binding.refund({ policy: "api", key: "user:42", units: 1, granted_at_us: decision.at_us, granted: 2 });
  // @ts-expect-error the units of the grant are missing
  await binding.refund({ policy: "api", key: "user:42", units: 1, granted_at_us: 1 });
  const { id } = await binding.reserve({ policy: "api", key: "user:42", cost: 2, time_to_live: "1s" });
  expectTypeOf((await binding.commit({ policy: "api", key: "user:42", id: id ?? "", actual: 1 })).late).toEqualTypeOf<boolean | undefined>();
  await binding.peek({ policy: "api", key: "user:42" });
  const { lease } = await binding.acquire({ policy: "jobs", key: "user:42" });
  expectTypeOf(lease).toEqualTypeOf<string | undefined>();
  const held = { policy: "jobs", key: "user:42", lease: lease ?? "" };
  await binding.renew({ ...held, count: 2 });
  expectTypeOf((await binding.release(held)).live).toEqualTypeOf<boolean | undefined>();
}
void ask;

// @ts-expect-error the policies are the text of a file
tidegate({ policies: {} });
// @ts-expect-error a policy is needed
void ((binding: Tidegate) => binding.check({ key: "user:42" }));
// @ts-expect-error a lease is named
void ((binding: Tidegate) => binding.renew({ policy: "jobs", key: "user:42" }));
