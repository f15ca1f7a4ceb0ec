// The gateway with a clock that is moved, keys for tokens, and counts of what is held:
// - `/test/later?MS` moves the clock, by which timers go too.
// - `/test/count` counts the timers that have fired, and the renewals and the releases of leases.
// - `/test/logged` tells the calls of `console.error`, each of which is one entry of the log.
// - `/test/sign?ALGORITHM&HEAD&PAYLOAD` signs a token.
// - `/test/trap` ends WebAssembly in the middle of a request.
// - `/test/bind?NAME&JSON` gives the Worker a binding of this value from now on; `null` takes the binding away.
import worker, { Keys, Policies } from "./worker/index.js";
import { Isolate, Owner } from "./worker/build/index.js";

export { Keys, Policies };

let later = 0;
const realNow = Date.now;
Date.now = () => realNow() + later;
const realTimeout = globalThis.setTimeout;
const timers = [];
globalThis.setTimeout = (end, span) => {
  if (span <= 1) return realTimeout(end, span); // only lets a response leave first
  const [timer, due] = [{}, Date.now() + span];
  const look = () => timer.cleared || (Date.now() >= due ? fire() : realTimeout(look, 1));
  const fire = () => {
    counts.fired += 1;
    end();
  };
  realTimeout(look, 1);
  return timers.push(timer) - 1;
};
globalThis.clearTimeout = (number) => {
  if (timers[number] !== undefined) timers[number].cleared = true;
};

const logged = [];
const realError = console.error;
console.error = (...words) => {
  logged.push(words.map((word) => word?.stack ?? word).join(" "));
  realError(...words);
};

const counts = { fired: 0, renewed: 0, released: 0 };
const { hold } = Isolate;
Isolate.hold = (renews, ...lease) => {
  counts[renews ? "renewed" : "released"] += 1;
  return hold(renews, ...lease);
};

// memory that does not exist, so that WebAssembly traps as it does after a panic
const NOWHERE = { __wbg_ptr: 0x7ffffff0 };
const { begin } = Isolate;
const trap = () => {
  Isolate.begin = begin;
  return Owner.prototype.ring.call(NOWHERE, 0);
};

const RS256 = { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256" };
const ALGORITHMS = {
  HS256: { name: "HMAC", hash: "SHA-256" },
  RS256: { ...RS256, modulusLength: 2048, publicExponent: new Uint8Array([1, 0, 1]) },
  ES256: { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" },
};
let made;
const bound = {};

async function makeKeys() {
  const [keys, all] = [{}, []];
  for (const [name, algorithm] of Object.entries(ALGORITHMS)) {
    const key = await crypto.subtle.generateKey(algorithm, true, ["sign", "verify"]);
    keys[name] = key.privateKey ?? key;
    all.push({ ...(await crypto.subtle.exportKey("jwk", key.publicKey ?? key)), kid: name });
  }
  // a secret that everybody knows: the public key, as a careless verifier would use it
  const known = new TextEncoder().encode(JSON.stringify(all[1]));
  keys.confused = await crypto.subtle.importKey("raw", known, ALGORITHMS.HS256, false, ["sign"]);
  return { keys, text: JSON.stringify({ keys: all }) };
}

async function sign(algorithm, ...parts) {
  const { keys } = await (made ??= makeKeys());
  const encoded = (bytes) => new Uint8Array(bytes).toBase64({ alphabet: "base64url", omitPadding: true });
  const signed = parts.map((part) => encoded(new TextEncoder().encode(part))).join(".");
  const how = ALGORITHMS[algorithm] ?? ALGORITHMS.HS256;
  const signature = await crypto.subtle.sign(how, keys[algorithm], new TextEncoder().encode(signed));
  return `${signed}.${encoded(signature)}`;
}

export default {
  async fetch(request, env, context) {
    const [, path, query] = /^[a-z]+:..[^/]*(\/test\/\w+)\??(.*)$/.exec(request.url) ?? [];
    switch (path) {
      case "/test/later":
        later += Number(query);
        return new Response("later");
      case "/test/count":
        return Response.json(counts);
      case "/test/trap":
        Isolate.begin = trap;
        return worker.fetch(request, env, context);
      case "/test/logged":
        return Response.json(logged);
      case "/test/bind": {
        const [name, value] = query.split("&").map(decodeURIComponent);
        bound[name] = JSON.parse(value) ?? undefined;
        return new Response("bound");
      }
      case "/test/sign":
        return new Response(await sign(...query.split("&").map(decodeURIComponent)));
    }
    const { text } = await (made ??= makeKeys());
    return worker.fetch(request, { ...env, JWT_KEYS: text, ...bound }, context);
  },
};
