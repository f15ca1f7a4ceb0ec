// Compiled, never run: what `tidegate/worker` must accept, and what it must not.
import { Keys, Tidegate, tidegate } from "tidegate/worker";
import type { Check, Decision } from "tidegate/worker";

const handler = tidegate("[policies.api]");
const response: Promise<Response> = handler.fetch(new Request("https://tidegate/healthz"), {}, {});
new Keys({}, {});

async function ask(binding: Tidegate): Promise<string | undefined> {
  const check: Check = { policy: "api", key: "user:42", cost: 2 };
  const decision: Decision = await binding.check(check);
  const { decisions } = await binding.check({ checks: [check] });
  const [limit] = decisions[0]?.limits ?? [];
  const estimate = { granted_at_us: decision.at_us, reserved: 2, actual: 1 };
  await binding.settle({ policy: "api", key: "user:42", ...estimate });
  await binding.settle({ policy: "api", key: "user:42", refund: 1 });
  await binding.peek({ policy: "api", key: "user:42" });
  const { lease } = await binding.acquire({ policy: "jobs", key: "user:42" });
  const held = { policy: "jobs", key: "user:42", lease: lease ?? "" };
  await binding.renew({ ...held, count: 2 });
  console.log((await binding.release(held)).live, decision.retry_after_us, response);
  return limit?.name;
}
void ask;

// @ts-expect-error the policies are the text of a file
tidegate({ policies: {} });
// @ts-expect-error a policy is needed
void ((binding: Tidegate) => binding.check({ key: "user:42" }));
// @ts-expect-error a lease is named
void ((binding: Tidegate) => binding.renew({ policy: "jobs", key: "user:42" }));
