// The tests compile this file and never run it. It says what the middleware must accept, and what it must refuse.
import { expectTypeOf } from "expect-type";
import type { DurableLimiter } from "tidegate/durable-objects";
import { RedisLimiter } from "tidegate/redis";
import { RemoteLimiter } from "tidegate/remote";
import { Limiter } from "tidegate";
import preferred, { rateLimit as express } from "tidegate/express";
import type { AdmitOptions } from "tidegate";
import type { Admission, AnyLimiter, CountIf, Granted, KeyOf, Limiters, LimitersOf, MiddlewareOptions, OlderHeaders, Store, Term, Terms, Told } from "tidegate/express";
import fastify from "tidegate/fastify";
import { type Limited, MemoryStore, rateLimit as fetched } from "tidegate/fetch";
import { rateLimit as hono } from "tidegate/hono";
import { rateLimit as koa } from "tidegate/koa";
import next, { rateLimit as named } from "tidegate/next";

expectTypeOf(preferred).toEqualTypeOf(express);
expectTypeOf(next).toEqualTypeOf(named);
expectTypeOf(next).toEqualTypeOf(fetched);

const limiter = new Limiter({ limits: [{ algorithm: "fixed_window", limit: 5, period: "1m" }] });
const store: Store = new MemoryStore(limiter);

expectTypeOf<MiddlewareOptions<[one: string, two: number]>>().toEqualTypeOf<{
  key?: KeyOf<[one: string, two: number]> | readonly (KeyOf<[one: string, two: number]> | undefined)[];
  cost?: number | ((one: string, two: number) => number | undefined | Promise<number | undefined>);
  actual?: Terms;
  countIf?: CountIf;
  ifUnknown?: "estimate" | "seen";
  ip?: (one: string, two: number) => string | undefined;
  headers?: OlderHeaders;
  store?: Store | readonly (Store | undefined)[];
  skip?: (one: string, two: number) => boolean | Promise<boolean>;
  countPreflight?: boolean;
  respond?: (told: Told, one: string, two: number) => Partial<Told> | undefined | void | Promise<Partial<Told> | undefined | void>;
  onError?: (error: unknown) => void;
}>();
expectTypeOf<Told>().toEqualTypeOf<{ readonly headers: Admission["headers"]; readonly refusal?: Admission["refusal"] }>();
expectTypeOf<Granted>().toEqualTypeOf<{ readonly keys: readonly string[]; readonly remaining: number; giveBack(): Promise<void>; commit(actual: number): void }>();
expectTypeOf<LimitersOf<[one: string]>>().toEqualTypeOf<(one: string) => Limiters | Promise<Limiters>>();
expectTypeOf<Store>().toEqualTypeOf<{
  check(key: string, options: AdmitOptions): Promise<Admission>;
  renew(key: string, lease: string): Promise<boolean>;
  release(key: string, lease: string): Promise<void>;
  commit?(key: string, id: string, actual: number): Promise<void>;
  giveBack?(key: string, admission: Admission): Promise<void>;
}>();
expectTypeOf<KeyOf<[one: string]>>().toEqualTypeOf<(one: string) => string | number | undefined | Promise<string | number | undefined>>();
expectTypeOf<AnyLimiter>().toEqualTypeOf<Limiter | RedisLimiter | DurableLimiter | RemoteLimiter>();
expectTypeOf<Limiters>().toEqualTypeOf<AnyLimiter | readonly AnyLimiter[]>();
koa(new RedisLimiter({ limits: [] }, { callBuffer: async () => 0 }));
koa([limiter, new RemoteLimiter({ url: "https://limiter.example", policy: "api" })], { key: (context) => context.user });
// a program without the types of a framework, as here of Koa, has requests of any type
koa([limiter, limiter], { key: [undefined, (context) => context.user], store: [store, undefined] });
const output: Term = { field: ["usage.output_tokens"], weight: 5, otherwise: 0 };
koa(limiter, { actual: [10, output, { header: "x-used" }, { bytes: 4 }], countIf: { status: [401, "500-599"] }, ifUnknown: "seen" });
koa(limiter, { countIf: { header: "x-login", value: "failed" } });

const middleware = express(limiter, { key: (request) => request.get("x-user"), cost: 2, headers: "draft-6", store, onError: console.error });
expectTypeOf(middleware).toEqualTypeOf<(request: any, response: any, next: (error?: any) => void) => void>();
const hook = fastify(limiter, { cost: async (request) => request.url.length });
expectTypeOf(hook).toEqualTypeOf<(request: any, reply: any) => Promise<any>>();
const ofHono = hono(limiter, { ip: (context) => context.env.address });
expectTypeOf(ofHono).toEqualTypeOf<(context: any, next: () => Promise<void>) => Promise<any>>();
expectTypeOf(koa(limiter)).toEqualTypeOf<(context: any, next: () => Promise<any>) => Promise<any>>();

express(async (request) => (request.path === "/login" ? [limiter, limiter] : limiter), { skip: (request) => request.path === "/healthz" });
hono((context: { plan: "free" | "pro" }) => ({ free: limiter, pro: limiter })[context.plan], { respond: (told, context) => context.plan === "pro" ? told : undefined });
koa(limiter, { respond: ({ refusal }) => refusal && { refusal: { ...refusal, status: 503 } } });
// @ts-expect-error a function chooses limiters
express(() => "pro");

interface Info {
  address: string;
}
const handler = async (request: Request, info: Info) => new Response(info.address);
const limited = fetched(limiter, handler, { ip: (_, info) => info.address });
expectTypeOf(limited).toEqualTypeOf<(request: Request, info: Info) => Promise<Response>>();
expectTypeOf(next(limiter, (request: Request) => new Response(request.url))).returns.toEqualTypeOf<Promise<Response>>();

const settling = fetched(limiter, async (request: Limited<Request>) => {
  expectTypeOf(request.rateLimit).toEqualTypeOf<Granted | undefined>();
  await request.rateLimit?.giveBack();
  return new Response();
});
settling(new Request("https://example.com"));

// @ts-expect-error a limiter is needed
express({ limits: [] });
// @ts-expect-error a list has limiters alone
express([limiter, {}]);
// @ts-expect-error there is no such form
express(limiter, { headers: "draft-5" });
// @ts-expect-error a term has a source
express(limiter, { actual: { weight: 2 } });
// @ts-expect-error a status is no name
express(limiter, { countIf: { status: { from: 400 } } });
// @ts-expect-error a status is a number, and only a range a text
express(limiter, { countIf: { status: "401" } });
// @ts-expect-error there is no such option
koa(limiter, { keys: () => "user:42" });
// @ts-expect-error a key is a text or a number
fetched(limiter, handler, { key: () => ({}) });
// @ts-expect-error a handler is needed
fetched(limiter, { cost: 2 });
// @ts-expect-error an address is a text
koa(limiter, { ip: () => 5 });
