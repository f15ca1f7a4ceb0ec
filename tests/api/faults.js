// The Worker with faults:
// - `/fault/arm?NAME` makes the next call of something fail.
// - `/fault/call?METHOD` calls a method of the object that was asked last.
// - `/fault/release` lets the object go on that was held first.
// - `/fault/later?MS` moves the clock.
// - `/fault/stand` lets the clock stand still at the start of a second; `later` still moves it.
// - `/fault/policies` lets the object of the revisions answer a call, and the isolate does not hear of it.
// - `/fault/store` replaces what that object has stored.
// - `/fault/arm?write events` gives the Worker a stand-in for Analytics Engine, which cannot be had here.
// - `/fault/woken` counts what must be woken when WebAssembly ends, such as exchanges that share a call.
// - `/fault/count` returns the events and what was logged. It counts the faults that are armed, the exchanges that were begun,
//   those of them that are remembered, the calls of objects, the objects that are held, and the bytes of WebAssembly's memory.
import worker, { Keys as Real, Policies as RealPolicies } from "./worker/index.js";
import { Fields } from "./worker/build/fields.js";
import { Isolate, NextStep, Owner, initSync } from "./worker/build/index.js";
import { whenEnded } from "./worker/recovery.js";

const armed = new Set();
let last;
let begun = 0;
let underWay = 0;
let calls = 0;
const held = [];
const logged = [];
const realError = console.error;
console.error = (...words) => {
  logged.push(words.join(" "));
  realError(...words);
};
const events = [];
const standIn = { writeDataPoint: (event) => events.push(event) };
let later = 0;
const realNow = Date.now;
let standing;
Date.now = () => (standing ?? realNow()) + later;

const happens = (fault) => armed.delete(fault);

// Memory that does not exist: WebAssembly traps as it does after a panic.
const NOWHERE = { __wbg_ptr: 0x7ffffff0 };
const traps = {
  // a text is given to a call and returned by it
  text: () => Owner.prototype.take.call(NOWHERE, "x", 0),
  promise: () => Owner.prototype.ring.call(NOWHERE, 0),
};
Owner.prototype.take = Owner.prototype.ask;
const { begin, finish, reply, start } = Isolate;
// WebAssembly sets `refresh` while it changes its node, and in a future if another revision comes in force. A call that needs
// the node then panics.
Isolate.start = (env, needs) => {
  let refresh;
  const spied = {
    get: () => refresh,
    set(value) {
      if (happens("panic in a future")) Isolate.waits(0, Date.now());
      refresh = value;
    },
  };
  return start(env, Object.defineProperty(needs, "refresh", { ...spied, configurable: true }));
};
Isolate.begin = (...head) => {
  if (happens("trap in text")) traps.text();
  if (happens("trap in begin")) traps.promise();
  const next = begin(...head);
  begun += 1;
  if ((next & ((1 << Isolate.step_bits()) - 1)) !== NextStep.Body) underWay += 1; // it begins again with its body
  return next;
};
Isolate.finish = (...exchange) => {
  underWay -= 1;
  return finish(...exchange);
};
Isolate.reply = (...question) => {
  if (happens("trap in reply")) traps.promise();
  return reply(...question);
};
const ownEnds = whenEnded.size;
Owner.prototype.ask = function (...question) {
  if (happens("trap in object")) traps.promise();
  if (happens("forget the policies")) return undefined;
  return this.take(...question);
};

export class Keys extends Real {
  async ask(question) {
    calls += 1;
    if (happens("throw before")) throw new Error("the object fails");
    // the runtime ends an object whose disk is full, and tells the caller what SQLite said
    if (happens("fill the disk")) this.ctx.abort("database or disk is full: SQLITE_FULL");
    if (happens("hold")) {
      held.push(this.ctx.id.name);
      await new Promise((release) => (this.release = release));
    }
    const first = await super.ask(question);
    if (happens("throw after")) throw new Error("the reply is lost");
    if (!happens("repeat")) return first;
    const second = await super.ask(question);
    if (String(first) !== String(second)) throw new Error("the second reply differs");
    return second;
  }

  go() {
    this.release();
  }

  ring() {
    return super.alarm();
  }

  evict() {
    this.ctx.abort("evicted");
  }
}

export class Policies extends RealPolicies {
  store(text) {
    this.ctx.storage.kv.put("revisions", text);
  }
}

export default {
  async fetch(request, env, context) {
    const { pathname, search } = new URL(request.url);
    const name = decodeURIComponent(search.slice(1));
    switch (pathname) {
      case "/fault/arm":
        armed.add(name);
        return new Response("armed");
      case "/fault/count": {
        const memory = initSync().memory.buffer.byteLength;
        return Response.json({ armed: armed.size, begun, underWay, calls, held: held.length, events, logged, memory });
      }
      case "/fault/woken":
        return Response.json({ woken: whenEnded.size - ownEnds });
      case "/fault/release":
        await env.KEYS.getByName(held.shift()).go();
        return new Response("released");
      case "/fault/policies": {
        const text = await env.POLICIES.getByName("policies").handle(await request.text(), name);
        return new Response(String(new Fields(text).number()));
      }
      case "/fault/store":
        await env.POLICIES.getByName("policies").store(await request.text());
        return new Response("stored");
      case "/fault/stand":
        standing = Math.floor(realNow() / 1_000) * 1_000;
        return new Response("standing");
      case "/fault/later":
        later += Number(name);
        return new Response("later");
      case "/fault/call":
        try {
          return new Response(await env.KEYS.getByName(last)[name]());
        } catch (error) {
          return new Response(error);
        }
    }
    const getByName = (object) => env.KEYS.getByName((last = object));
    const faulty = { ...env, KEYS: { getByName } };
    if (armed.has("write events")) faulty.TIDEGATE_EVENTS = standIn;
    return worker.fetch(request, faulty, context);
  },
};
