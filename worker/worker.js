// The Worker. It awaits and moves bytes; WebAssembly reads the requests, decides, and words the answers.
import { DurableObject } from "cloudflare:workers";
import { Isolate, NextStep, Owner, __wbg_reset_state, initSync } from "./build/index.js";
import module from "./build/index_bg.wasm";
import { forward } from "./gateway.js";
import { InForce, Keeper, learn } from "./policies.js";
import { Rows } from "./rows.js";
import { logError, tell } from "./tell.js";
import { isVerified } from "./token.js";

initSync({ module });

/** The longest body of a call, and the most of a longer one that is read before it is refused. */
const MAX_BODY = Isolate.max_body();
const MAX_DRAINED = Isolate.max_drained();

/**
 * Why the Worker cannot work, for the log; `null` if it can. `undefined` before the first request, because `env` comes with
 * it.
 */
let failure;

/** The policies in force; `undefined` before the first request. */
let inForce;

/** The answer to a request whose own code failed. WebAssembly may be at its end, so it is not asked. */
const FAILED =
  '{"type":"urn:tidegate:internal-error","title":"Internal error","status":500,' +
  '"detail":"the Worker failed on this request, and its log says why"}';

const trustsCallerTime = (env) => String(env.TIDEGATE_TRUST_CALLER_TIME) === "true";

const tellsTime = (env) => String(env.TIDEGATE_SERVER_TIMING) === "true";

/** The handler of a Worker with this text of a policy file, which WebAssembly reads at the first request. */
export function tidegate(policies) {
  globalThis.TIDEGATE_POLICIES = policies;
  return handler;
}

export const handler = { fetch: answer };

/** How many times WebAssembly began anew. Numbers that an earlier instance gave mean something else in a later one. */
let instance = 0;

/**
 * After a panic WebAssembly begins anew: what it remembered is gone, and what was stored is not. The first error after a
 * panic may be another one than the panic's own.
 */
function recover(error) {
  const ended =
    error instanceof WebAssembly.RuntimeError || error instanceof RangeError || error?.message === "Module terminated";
  if (!ended) return;
  __wbg_reset_state();
  instance += 1;
  failure = undefined;
  for (const goOn of sharing.values()) goOn();
  sharing.clear();
}

/** Begins, unless it has begun. */
function start(env) {
  if (failure !== undefined) return;
  failure = wrongBinding(env);
  if (failure !== undefined) return;
  const tells = [env.TIDEGATE_LOG_SECRET, env.TIDEGATE_EVENTS !== undefined, tellsTime(env)];
  failure = Isolate.start(env.TIDEGATE_TOKEN, env.TIDEGATE_ADMIN_TOKEN, trustsCallerTime(env), ...tells) ?? null;
  if (failure === null) inForce = new InForce(env, globalThis.TIDEGATE_POLICIES);
}

const SECRETS = ["TIDEGATE_TOKEN", "TIDEGATE_ADMIN_TOKEN", "TIDEGATE_LOG_SECRET"];

/** What is wrong with a binding. A secret that is no text would have one that everybody knows: `[object Object]`. */
function wrongBinding(env) {
  const secret = SECRETS.find((name) => !["string", "undefined"].includes(typeof env[name]));
  if (secret !== undefined) return `${secret}: expected a text, found a value of type ${typeof env[secret]}`;
  if (env.KEYS === undefined) return "KEYS: expected the binding of the Durable Objects, found none";
  const delay = env.TIDEGATE_POLICIES_DELAY_MS;
  if (!(Number(delay ?? 0) >= 0)) return `TIDEGATE_POLICIES_DELAY_MS: expected milliseconds, found ${delay}`;
}

/** The response to a request while the Worker cannot work. */
function misconfigured(request) {
  logError(failure);
  return response(Isolate.misconfigured(request.url));
}

async function answer(request, env, context) {
  try {
    start(env);
    const refreshed = inForce?.refresh(env, context);
    if (refreshed !== undefined) await refreshed;
    const asked = { request, env, context, body: undefined, began: instance, begun: Date.now() };
    if (inForce?.readsBodiesFirst && request.method !== "GET" && isAnnounced(request)) asked.body = await bodyOf(request);
    const answered = begin(asked);
    return answered instanceof Promise ? await answered : answered;
  } catch (error) {
    recover(error);
    logError("a request failed", error?.stack ?? error);
    return new Response(FAILED, {
      status: 500,
      headers: { "content-type": "application/problem+json", "cache-control": "no-store" },
    });
  }
}

function begin(asked) {
  const { request, env, body } = asked;
  start(env); // WebAssembly may have begun anew meanwhile
  if (failure !== null) return misconfigured(request);
  asked.began = instance;
  const country = countryOf(request);
  const [text, unread] = typeof body === "number" ? [undefined, body] : [body, undefined];
  return goOn(Isolate.begin(request, country, text, unread, Date.now()), asked);
}

/** Does the next step of an exchange. `next` is what `Isolate.begin` returns. */
function goOn(next, asked) {
  const { env, context } = asked;
  const exchange = next >>> 3;
  switch (next & 7) {
    case NextStep.Finish:
      return end(exchange, asked);
    case NextStep.Send:
      for (const call of transmit(env)) context.waitUntil(call);
      return end(exchange, asked);
    case NextStep.Body:
      return read(asked);
    case NextStep.Wait:
      return survive(finish(exchange, transmit(env), asked), context);
    case NextStep.Verify:
      return survive(verify(exchange, asked), context);
    case NextStep.Change:
      return survive(change(env, exchange), context);
  }
}

/** A client that hangs up must not leave its exchange behind. */
function survive(answered, context) {
  context.waitUntil(answered);
  return answered;
}

async function read(asked) {
  asked.body = await bodyOf(asked.request);
  return begin(asked);
}

async function verify(exchange, asked) {
  const isTrue = await isVerified(Isolate.token(exchange, Date.now()), asked.env);
  if (asked.began !== instance) return unavailable(asked);
  return goOn(Isolate.verified(exchange, isTrue, Date.now()), asked);
}

async function finish(exchange, calls, asked) {
  await (calls.length === 1 ? calls[0] : Promise.all(calls));
  if (inForce.sharesCalls) await share(exchange, asked);
  return asked.began === instance ? end(exchange, asked) : unavailable(asked);
}

/** The exchanges that wait for a call that another request makes, and what lets them go on. */
const sharing = new Map();

/** How long an exchange waits before it looks by itself whether it can go on. */
const LONGEST_TURN_MS = 2_000;

/** Waits until the checks of an exchange have their answers. Their call is another request's, or the next one. */
async function share(exchange, asked) {
  while (asked.began === instance && Isolate.waits(exchange, Date.now())) {
    sharing.delete(exchange);
    const calls = transmit(asked.env); // it may be its turn
    if (calls.length === 0) {
      await Promise.race([new Promise((goOn) => sharing.set(exchange, goOn)), scheduler.wait(LONGEST_TURN_MS)]);
    }
    await Promise.all(calls);
    wake(); // gives up calls that have no answer
  }
  if (asked.began === instance) sharing.delete(exchange); // otherwise the number may be another exchange's
}

/** Lets other exchanges go on. */
function wake() {
  for (const exchange of Isolate.woken(Date.now())) sharing.get(exchange)?.();
}

function end(exchange, asked) {
  const { env, context, begun } = asked;
  const now = Date.now();
  if (env.TIDEGATE_EVENTS !== undefined) tell(env, context, Isolate.events(exchange, now), begun);
  return serve(Isolate.finish(exchange, now), asked);
}

/** Lets the object of the revisions answer. */
async function change(env, exchange) {
  return response(await inForce.handle(env, Isolate.policy_call(exchange, Date.now())));
}

/** The response to a request that was under way when WebAssembly ended: `on_error` decides. */
function unavailable(asked) {
  const { request, env, body } = asked;
  start(env);
  if (failure !== null) return misconfigured(request);
  const text = typeof body === "string" ? body : undefined;
  return serve(Isolate.unavailable(request, countryOf(request), text, Date.now()), asked);
}

/** The country of a client. Reading it parses all that Cloudflare tells of a request. */
const countryOf = (request) => (inForce.readsCountry ? request.cf?.country : undefined);

/** The answer of the Worker itself, or of the upstream to a request that passes. */
function serve(served, { request, env, context }) {
  if (!served.startsWith("0\n")) return response(served);
  const failed = () => response(Isolate.upstream_failed(request.headers.get("accept") ?? undefined));
  const forwarded = forward(request, served, context, (renews, lease) => hold(env, renews, lease), failed);
  context.waitUntil(forwarded); // what is held must be released if the client hangs up
  return forwarded;
}

/** Renews or releases a lease. If that fails, the lease expires. */
async function hold(env, renews, lease) {
  try {
    Isolate.hold(renews, ...lease, Date.now());
    await Promise.all(transmit(env));
  } catch (error) {
    recover(error);
    logError(`a lease was not ${renews ? "renewed" : "released"}`, error);
  }
}

/** Sends the questions that are due, in one call for each object. Returns the calls. */
function transmit(env) {
  const now = Date.now();
  const all = new Map();
  for (let text = Isolate.transmit(now); text !== undefined; text = Isolate.transmit(now)) {
    const [number, revision, units] = text.split("\n", 3);
    const at = number.length + revision.length + units.length + 3;
    const object = text.slice(at, at + Number(units));
    const question = { number: Number(number), revision: revision || undefined, text: text.slice(at + Number(units)) };
    if (all.has(object)) all.get(object).push(question);
    else all.set(object, [question]);
  }
  return Array.from(all, ([object, questions]) => ask(env, object, questions));
}

/** Sends the questions of an object in one call. */
async function ask(env, object, questions) {
  const began = instance;
  let replies = [];
  let cause;
  try {
    const stub = env.KEYS.getByName(object);
    const [{ text, revision }] = questions;
    if (questions.length === 1) replies = [await askOne(stub, text, revision)];
    else replies = await stub.askAll(questions.map(({ text }) => text), questions.map(({ revision }) => revision));
  } catch (error) {
    cause = error; // the log gets it with the policy and the key
  }
  if (began !== instance) {
    if (cause !== undefined) logError("durable object", cause);
    return;
  }
  const now = Date.now();
  try {
    const storageFailed = /\bSQLITE_/.test(cause?.message); // the runtime ends an object whose disk is full
    questions.forEach(({ number }, place) => Isolate.reply(number, replies[place] ?? undefined, storageFailed, cause, now));
    if (inForce.sharesCalls) wake();
  } catch (error) {
    recover(error);
    logError("a reply was lost", error?.stack ?? error);
  }
}

/** An argument costs time even if it is `undefined`. */
const askOne = (stub, question, revision) =>
  revision === undefined ? stub.ask(question) : stub.ask(question, revision);

/** Whether a request announces a body, and one that is not too long. */
function isAnnounced(request) {
  const length = request.headers.get("content-length");
  return length !== null && Number(length) <= MAX_BODY;
}

/**
 * The text of a body, or how many bytes were read of a body that is too long, or 0 if the body did not arrive whole. An
 * array of bytes costs a quarter of a whole check; WebAssembly refuses texts that may stand for other bytes.
 */
async function bodyOf(request) {
  try {
    if (isAnnounced(request)) return await request.text();
    return request.body === null ? "" : await chunksOf(request.body);
  } catch {
    return 0;
  }
}

async function chunksOf(body) {
  const chunks = [];
  let bytes = 0;
  for await (const chunk of body) {
    bytes += chunk.length;
    if (bytes <= MAX_BODY) chunks.push(chunk);
    if (bytes > MAX_DRAINED) break;
  }
  return bytes > MAX_BODY ? bytes : new Blob(chunks).text();
}

/** A response out of its text: the status, names and values of headers each on a line, an empty line, the body. */
function response(text) {
  const end = text.indexOf("\n\n");
  const [status, ...lines] = text.slice(0, end).split("\n");
  const headers = {};
  for (let line = 0; line < lines.length; line += 2) headers[lines[line]] = lines[line + 1];
  return new Response(text.slice(end + 2) || null, { status: Number(status), headers });
}

/**
 * How long after a write an object looks for states that have expired. Each alarm costs a write, and deleting a
 * database that is soon made anew costs more, so this is much longer than most states last.
 */
const ALARM_AFTER_MS = 300_000;

/** The states of the keys that belong to one object. */
export class Keys extends DurableObject {
  constructor(state, env) {
    super(state, env);
    this.rows = new Rows(state.storage);
    this.trusts = trustsCallerTime(env);
    this.alarmAfter = Number(env.TIDEGATE_ALARM_AFTER_MS ?? ALARM_AFTER_MS); // tests wait less
    this.hasAlarm = false;
    this.owner = undefined;
    this.instance = instance;
  }

  /** Answers several questions; `null` in place of an answer that failed. */
  askAll(questions, revisions) {
    const unknown = revisions?.find((revision) => revision !== undefined && !Isolate.knows(revision));
    if (unknown !== undefined) return learn(this.env, unknown).then(() => this.askAll(questions, revisions));
    return questions.map((question, place) => {
      try {
        return this.decide(question, revisions?.[place]);
      } catch (error) {
        logError("a question failed", error?.stack ?? error);
        return null;
      }
    });
  }

  /**
   * Answers a question of an isolate by an revision of the policies. Only WebAssembly reads the question and the reply.
   */
  ask(question, revision) {
    if (revision === undefined || Isolate.knows(revision)) return this.decide(question, revision);
    return learn(this.env, revision).then(() => this.decide(question, revision));
  }

  inForce(deployed, known) {
    return new Keeper(this.ctx.storage.kv).inForce(deployed, known);
  }

  policyFile(hash) {
    return new Keeper(this.ctx.storage.kv).file(hash);
  }

  handlePolicies(call, deployed) {
    return new Keeper(this.ctx.storage.kv).handle(call, deployed);
  }

  decide(question, revision) {
    if (this.instance !== instance) [this.owner, this.instance] = [undefined, instance];
    try {
      this.owner ??= new Owner(this.rows, this.trusts, this.ctx.id.name ?? "");
      return this.owner.ask(question, Date.now(), revision);
    } catch (error) {
      recover(error);
      this.owner = undefined; // what is not stored is unknown
      this.rows.values = [];
      throw error;
    } finally {
      if (this.rows.wrote && !this.hasAlarm) {
        this.hasAlarm = true;
        this.ctx.waitUntil(this.setAlarm());
      }
    }
  }

  /** After the response has left, so that no answer waits for it. */
  async setAlarm() {
    await scheduler.wait(1);
    try {
      if ((await this.ctx.storage.getAlarm()) === null) {
        await this.ctx.storage.setAlarm(Date.now() + this.alarmAfter);
      }
    } catch (error) {
      this.hasAlarm = false; // the next write tries again
      logError("the alarm could not be set, so expired states stay for now", error);
    }
  }

  /** Deletes expired states. */
  async alarm() {
    this.hasAlarm = false;
    const { deleted, next } = this.rows.expire(Date.now());
    if (deleted > 0 || next === null) this.owner = undefined; // it remembers rows that are gone
    if (next === null) {
      this.rows = new Rows(this.ctx.storage);
      await this.ctx.storage.deleteAll(); // even an empty database is billed
    } else {
      this.hasAlarm = true;
      await this.ctx.storage.setAlarm(Math.max(next, Date.now() + this.alarmAfter));
    }
  }
}
