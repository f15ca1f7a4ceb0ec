// The Worker. It awaits and moves bytes; WebAssembly reads the requests, decides, and words the answers.
import { DurableObject } from "cloudflare:workers";
import { Fields } from "./build/fields.js";
import { Isolate, Keeper, NextStep, Owner, Refresh, initSync } from "./build/index.js";
import module from "./build/index_bg.wasm";
import { instance, onEnd, outlive, recover } from "./recovery.js";
import { Rows } from "./rows.js";
import { logError } from "./tell.js";

initSync({ module });

/** The longest body of a call, and the most of a longer one that is read before it is refused. */
const MAX_BODY = Isolate.max_body();
const MAX_DRAINED = Isolate.max_drained();

/** How many bits of what `Isolate.begin` returns are the step. */
const STEP_BITS = Isolate.step_bits();
const STEP = (1 << STEP_BITS) - 1;

/**
 * Why the Worker cannot work, for the log; `null` if it can. `undefined` before the first request, because `env` comes with
 * it.
 */
let failure;

/** What the policies in force ask of each request. WebAssembly is asked once for all requests. */
let inForce;

/** The answer to a request whose own code failed. WebAssembly may be at its end, so it is not asked. */
const FAILED =
  '{"type":"urn:tidegate:internal-error","title":"Internal error","status":500,' +
  '"detail":"the Worker failed on this request, and its log says why"}';

/** The handler of a Worker with this text of a policy file, which WebAssembly reads at the first request. */
export function tidegate(policies) {
  globalThis.TIDEGATE_POLICIES = policies;
  return handler;
}

export const handler = { fetch: answer };

/** What the log tells of an error in the Worker's own code. */
const stackOf = (error) => error?.stack ?? error;

onEnd(() => {
  failure = undefined;
  for (const goOn of sharing.values()) goOn();
  sharing.clear();
});

/** Begins, unless it has begun. */
function start(env) {
  if (failure !== undefined) return;
  failure = Isolate.start(env) ?? null;
  if (failure === null) learn();
}

/** Asks WebAssembly what it needs of each request. */
function learn() {
  const now = Date.now();
  inForce = {
    change: Isolate.policies_change(now),
    readsCountry: Isolate.reads_country(now),
    sharesCalls: Isolate.shares_calls(now),
    /** Whether each body that comes is for a call, so that a request needs to begin only once. */
    readsBodiesFirst: !Isolate.has_routes(now),
  };
}

/** Asks for the policies in force, if it is time. Returns a promise if the request must wait. */
function refresh(env, context) {
  const due = Isolate.refresh_due(Date.now());
  if (due === Refresh.No) return undefined;
  const refreshed = outlive(() => Isolate.refresh(env)).then(() => failure === null && learn());
  if (due === Refresh.First) return refreshed;
  context.waitUntil(refreshed);
}

/** The response to a request while the Worker cannot work. */
function misconfigured(request) {
  logError(failure);
  return response(Isolate.misconfigured(request.url));
}

async function answer(request, env, context) {
  try {
    start(env);
    const refreshed = failure === null && inForce.change ? refresh(env, context) : undefined;
    if (refreshed !== undefined) await refreshed;
    const asked = { request, env, context, body: undefined, began: instance, begun: Date.now() };
    if (inForce?.readsBodiesFirst && request.method !== "GET" && isAnnounced(request)) asked.body = await bodyOf(request);
    const answered = begin(asked);
    return answered instanceof Promise ? await answered : answered;
  } catch (error) {
    recover(error);
    logError("a request failed", stackOf(error));
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
  const exchange = next >>> STEP_BITS;
  switch (next & STEP) {
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
      return survive(change(exchange, asked), context);
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
  const next = await outlive(() => Isolate.verify(exchange, asked.env));
  return asked.began === instance ? goOn(next, asked) : unavailable(asked);
}

/** Lets the object of the policies answer. */
async function change(exchange, asked) {
  const text = await outlive(() => Isolate.change(exchange, asked.env));
  if (asked.began !== instance) return unavailable(asked);
  learn();
  return response(text);
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
  if (env.TIDEGATE_EVENTS !== undefined) Isolate.tell(exchange, env, context, (now - begun) * 1_000, now);
  return serve(exchange, asked);
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
function serve(exchange, asked) {
  const text = Isolate.finish(exchange, Date.now());
  if (text !== undefined) return response(text);
  return survive(forward(exchange, asked), asked.context); // what is held must be released
}

/** Sends a request that passes to its upstream. */
async function forward(exchange, { request, env, context }) {
  const holds = (renews, policy, key, lease) => hold(env, renews, policy, key, lease);
  const answer = await outlive(() => Isolate.forward(exchange, request, context, holds, Date.now()));
  return answer ?? response(Isolate.upstream_failed(request.headers.get("accept") ?? undefined));
}

/** Renews or releases a lease. If that fails, the lease expires. */
async function hold(env, renews, policy, key, lease) {
  try {
    Isolate.hold(renews, policy, key, lease, Date.now());
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
    const fields = new Fields(text);
    const [number, revision, object] = [fields.number(), fields.text(), fields.text()];
    const question = { number, revision: revision || undefined, text: fields.text() };
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
    logError("a reply was lost", stackOf(error));
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

/** A response out of its text. */
function response(text) {
  const fields = new Fields(text);
  const status = fields.number();
  const headers = {};
  for (let count = fields.number(); count > 0; count -= 1) headers[fields.text()] = fields.text();
  return new Response(fields.text() || null, { status, headers });
}

/** The states of the keys that belong to one object. */
export class Keys extends DurableObject {
  constructor(state, env) {
    super(state, env);
    this.rows = new Rows(state.storage);
    this.owner = undefined;
    this.instance = instance;
  }

  /** Answers several questions; `null` in place of an answer that failed. */
  askAll(questions, revisions) {
    const unknown = revisions?.find((revision) => revision !== undefined && !Isolate.knows(revision));
    if (unknown !== undefined) return this.#learn(unknown).then(() => this.askAll(questions, revisions));
    return questions.map((question, place) => {
      try {
        return this.#decide(question, revisions?.[place]);
      } catch (error) {
        logError("a question failed", stackOf(error));
        return null;
      }
    });
  }

  /**
   * Answers a question of an isolate by an revision of the policies. Only WebAssembly reads the question and the reply.
   */
  ask(question, revision) {
    if (revision === undefined || Isolate.knows(revision)) return this.#decide(question, revision);
    return this.#learn(revision).then(() => this.#decide(question, revision));
  }

  #learn(revision) {
    return outlive(() => Isolate.learn(revision, this.env));
  }

  #decide(question, revision) {
    return this.#use((owner) => owner.ask(question, Date.now(), revision));
  }

  /** Deletes expired states. */
  alarm() {
    return outlive(() => this.#use((owner) => owner.ring(Date.now())));
  }

  #use(call) {
    if (this.instance !== instance) [this.owner, this.instance] = [undefined, instance];
    try {
      this.owner ??= new Owner(this.rows, this.ctx, this.env);
      return call(this.owner);
    } catch (error) {
      recover(error);
      this.owner = undefined; // what is not stored is unknown
      this.rows.values = [];
      throw error;
    }
  }
}

/** The object that keeps the policies which callers have put over the deployed ones. */
export class Policies extends DurableObject {
  inForce(deployed, known) {
    return outlive(() => Keeper.in_force(this.ctx, deployed, known));
  }

  file(hash) {
    return outlive(() => Keeper.file(this.ctx, hash));
  }

  handle(call, deployed) {
    return outlive(() => Keeper.handle(this.ctx, call, deployed));
  }
}
