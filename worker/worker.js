// The Worker. It awaits and moves bytes; WebAssembly reads the requests, decides, and words the answers.
import { DurableObject } from "cloudflare:workers";
import { Fields } from "./build/fields.js";
import { Isolate, NextStep, RevisionStore, initSync, watch } from "./build/index.js";
import module from "./build/index_bg.wasm";
import { keysBy } from "./keys.js";
import { logError } from "./log.js";
import { instance, outlive, recover, whenEnded } from "./recovery.js";

initSync({ module });
watch();

/** The longest body of a call. */
const MAX_BODY = Isolate.max_body();

/** How many bits of what `Isolate.begin` returns are the step. */
const STEP_BITS = Isolate.step_bits();
const STEP = (1 << STEP_BITS) - 1;

/**
 * Why the Worker cannot work, for the log; `null` if it can. `undefined` before the first request, because `env` comes with
 * it.
 */
let failure;

/** What each request needs. WebAssembly sets it for all requests. */
const needs = { refresh: false, country: false, body: false };

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

/** What the log says of an error in the Worker's own code. */
const stackOf = (error) => error?.stack ?? error;

whenEnded.add(() => (failure = undefined));

/** Begins, unless it has begun. */
function start(env) {
  if (failure === undefined) failure = Isolate.start(env, needs) ?? null;
}

async function answer(request, env, context) {
  const asked = { request, env, context, body: undefined, began: instance, begun: Date.now() };
  try {
    start(env);
    const refreshed = failure === null && needs.refresh ? Isolate.refresh(env, context, Date.now()) : undefined;
    if (refreshed !== undefined) await outlive(() => refreshed);
    if (needs.body && request.method !== "GET" && isAnnounced(request)) asked.body = await bodyOf(request);
    const answered = begin(asked);
    if (!(answered instanceof Promise)) return answered;
    context.waitUntil(answered); // a client that hangs up must not leave its exchange behind
    return await answered;
  } catch (error) {
    recover(error, asked.began);
    logError("a request failed", stackOf(error));
    return new Response(FAILED, {
      status: 500,
      headers: { "content-type": "application/problem+json", "cache-control": "no-store" },
    });
  }
}

/** Begins an exchange, by a call of WebAssembly. */
function begin(asked, call = Isolate.begin) {
  const { request, env, body } = asked;
  start(env); // WebAssembly may have begun anew meanwhile
  asked.began = instance;
  if (failure !== null) {
    logError(failure);
    return response(Isolate.misconfigured(request.url));
  }
  // reading the country parses all that Cloudflare says of a request
  const country = needs.country ? request.cf?.country : undefined;
  const [text, unread] = typeof body === "number" ? [undefined, body] : [body, undefined];
  return goOn(call(request, country, text, unread, Date.now()), asked);
}

/** The response to a request that was under way when WebAssembly ended: `on_error` decides. */
const unavailable = (asked) => begin(asked, Isolate.unavailable);

/** Does the next step of an exchange. `next` is what `Isolate.begin` returns. */
function goOn(next, asked) {
  const exchange = next >>> STEP_BITS;
  switch (next & STEP) {
    case NextStep.Finish:
      return end(exchange, asked);
    case NextStep.Send:
      for (const call of transmit(asked.env)) asked.context.waitUntil(call);
      return end(exchange, asked);
    case NextStep.Wait:
      return finish(exchange, asked);
    case NextStep.Body:
      return bodyOf(asked.request).then((body) => begin(Object.assign(asked, { body })));
    case NextStep.Await:
      return proceed(exchange, asked);
  }
}

async function proceed(exchange, asked) {
  const next = await outlive(() => Isolate.proceed(exchange, asked.request, asked.env));
  return asked.began === instance ? goOn(next, asked) : unavailable(asked);
}

/** Waits until the checks of an exchange have their answers. Their calls are its own, or another request's. */
async function finish(exchange, asked) {
  do {
    const calls = transmit(asked.env);
    if (calls.length === 0) calls.push(turn(exchange));
    await (calls.length === 1 ? calls[0] : Promise.all(calls));
  } while (asked.began === instance && Isolate.waits(exchange, Date.now()));
  return asked.began === instance ? end(exchange, asked) : unavailable(asked);
}

/** Waits until an exchange that shares a call has its answers, or must make the next call. */
const turn = (exchange) =>
  outlive((goOn) => scheduler.wait(Isolate.on_turn(exchange, goOn, Date.now())));

/** The answer of the Worker itself, or of the upstream to a request that passes. */
function end(exchange, { request, env, context, begun }) {
  const now = Date.now();
  if (env.TIDEGATE_EVENTS !== undefined) Isolate.emit(exchange, env, context, (now - begun) * 1_000, now);
  const text = Isolate.finish(exchange, now);
  return text === undefined ? forward(exchange, request, env, context) : response(text);
}

/** Sends a request that passes to its upstream. */
async function forward(exchange, request, env, context) {
  // a commit is taken once, so it is repeated if its object was away
  const hold = async (renews, policy, key, name, actual) => {
    for (const wait of actual === undefined ? [0] : [0, 50, 500]) {
      if (wait > 0) await scheduler.wait(wait);
      Isolate.hold(renews, policy, key, name, actual, Date.now());
      if ((await Promise.all(transmit(env))).every((arrived) => arrived)) return;
    }
  };
  const answer = await outlive(() => Isolate.forward(exchange, request, context, hold, Date.now()));
  return answer ?? response(Isolate.upstream_failed(request));
}

/** Sends the questions that are due, in one call for each object. Returns the calls. */
function transmit(env) {
  const fields = new Fields(Isolate.transmit(Date.now()));
  return Array.from({ length: fields.number() }, () => ask(env, fields.text(), fields.text(), fields.text()));
}

/** Sends questions to an object. WebAssembly knows them by their numbers. Returns whether the reply arrived. */
async function ask(env, object, numbers, questions) {
  const began = instance;
  let reply;
  let cause;
  try {
    reply = await env.KEYS.getByName(object).ask(questions);
  } catch (error) {
    cause = error; // the log gets it with the policy and the key
  }
  try {
    if (began === instance) Isolate.reply(numbers, reply, cause, Date.now());
    else if (cause !== undefined) logError("durable object", cause);
  } catch (error) {
    recover(error, began);
    logError("a reply was lost", stackOf(error));
  }
  return cause === undefined;
}

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
    return await (isAnnounced(request) ? request.text() : outlive(() => Isolate.read(request)));
  } catch {
    return 0;
  }
}

/** A response out of its text. */
function response(text) {
  const fields = new Fields(text);
  const status = fields.number();
  const headers = {};
  for (let count = fields.number(); count > 0; count -= 1) headers[fields.text()] = fields.text();
  return new Response(fields.text() || null, { status, headers });
}

/** The states of the keys that belong to one object. It reads a revision of the policies that it does not know. */
export const Keys = keysBy((questions, env) => outlive(() => Isolate.learn(questions, env)));

/** The object that keeps the policies which callers have put over the deployed ones. */
export class Policies extends DurableObject {
  inForce(deployed, known, counted, all) {
    return outlive(() => RevisionStore.in_force(this.ctx, deployed, known, counted, all));
  }

  file(hash) {
    return outlive(() => RevisionStore.file(this.ctx, hash));
  }

  handle(call, deployed) {
    return outlive(() => RevisionStore.handle(this.ctx, call, deployed));
  }
}
