// The middleware in front of real servers of each framework: the same requests get the same bytes.
import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import { mock, test } from "node:test";

import { frameworks, serve } from "../frameworks.mjs";
import { load } from "../installed.mjs";

const { Limiter } = await load();
const { toml } = await load("tidegate/toml");
const { MemoryStore } = await load("tidegate/fetch");

const NOW_MS = 1_700_000_000_000; // 800 s after the start of an hour

const FILE = `
trusted_proxies = ["127.0.0.0/8"]
[policies.api]
key = ["header:x-api-key", ["cookie:sid", "ip"], "query:token", "ip"]
limits = [{ algorithm = "fixed_window", limit = 2, period = "1h" }]
deny = ["header:x-api-key:mallory"]

[policies.named]
key = ["header:x-api-key", "query:token"]
limits = [{ algorithm = "token_bucket", capacity = 10, rate = "10/s" }]

[policies.jobs]
key = ["header:x-api-key"]
limits = [{ algorithm = "concurrency", capacity = 1, time_to_live = "30s" }]

[policies.fleet]
key = ["header:x-api-key"]
limits = [{ algorithm = "fleet_usage", capacity = 2, reserve = "50%", time_to_live = "30s" }]
`;

const of = (policy) => new Limiter(toml(FILE), { policy });

const FIELDS = ["ratelimit", "retry-after", "content-type", "cache-control", "x-ratelimit"];

/** Asks a server, and returns the parts of its answer that the middleware decides. */
async function ask(port, { path = "/", method = "GET", ...headers } = {}) {
  const request = http.request({ port, host: "127.0.0.1", path, method, headers, agent: false }).end();
  const [response] = await once(request, "response");
  const body = (await response.setEncoding("utf8").toArray()).join("");
  const known = Object.entries(response.headers).filter(([name]) => FIELDS.some((field) => name.startsWith(field)));
  if (response.statusCode === 200) return [200, body, ...known.filter(([name]) => name.includes("ratelimit")).sort()];
  return [response.statusCode, JSON.parse(body), ...known.sort()];
}

/** The status alone, because frameworks word their own errors. */
async function askStatus(port) {
  const request = http.request({ port, host: "127.0.0.1", agent: false }).end();
  const [response] = await once(request, "response");
  response.resume();
  return response.statusCode;
}

const granted = (remaining) => [
  200, "hello", ["ratelimit", `"api";r=${remaining};t=2800`], ["ratelimit-policy", '"api";q=2;w=3600'],
];
const problem = (status, type, title, rest) => [status, { type, title, status, ...rest }];
const plain = [["cache-control", "no-store"], ["content-type", "application/problem+json"]];
const refused = [
  ...problem(429, "https://iana.org/assignments/http-problem-types#quota-exceeded", "Quota exceeded", {
    detail: "the same request is granted in 2800 s", "violated-policies": ["api"], retry_after_us: 2_800_000_000,
  }),
  ...plain, ["ratelimit", '"api";r=0;t=2800'], ["ratelimit-policy", '"api";q=2;w=3600'], ["retry-after", "2800"],
];
const denied = [
  ...problem(403, "urn:tidegate:denied", "Denied", { detail: "the key is on the policy's list `deny`" }), ...plain,
];

const alice = { "x-api-key": "alice" };
const from = (address) => ({ "x-forwarded-for": address });
const cookie = (sid, address) => ({ cookie: `a=b; sid=${sid}`, ...from(address) });

/** The requests, in this order, and what they get. */
const TABLE = [
  ["a header is the key", alice, granted(1)],
  ["a header is the key, again", { ...alice, path: "/b?x=y" }, granted(0)],
  ["a request beyond the limit is refused", alice, refused],
  ["another key has its own limit", { "x-api-key": "bob" }, granted(1)],
  ["a denied key is refused", { "x-api-key": "mallory" }, denied],
  ["the client of a trusted proxy", from("192.0.2.1"), granted(1)],
  ["what a client writes before it counts for nothing", from("9.9.9.9, 192.0.2.1"), granted(0)],
  ["an IPv6 address", from("2001:db8::1"), granted(1)],
  ["another address of the same network", from("2001:db8::2"), granted(0)],
  ["another network", from("2001:db8:1::1"), granted(1)],
  ["a cookie and an address", cookie("s", "192.0.2.9"), granted(1)],
  ["the same cookie from another address", cookie("s", "192.0.2.10"), granted(1)],
  ["the same cookie from the first address", cookie("s", "192.0.2.9"), granted(0)],
  ["a field of the query", { path: "/?token=%61b" }, granted(1)],
  ["the same field written otherwise", { path: "/c?token=ab" }, granted(0)],
  ["the same cookie, encoded", cookie("%73", "192.0.2.9"), refused],
  ["a header that proxies take off", { "x-api-key": "new", connection: "close, X-Api-Key", ...from("192.0.2.1") }, refused],
  ["a header in two spellings", { "x-api-key": "new", x_api_key: "alice", ...from("192.0.2.1") }, refused],
  ["a header twice", { "x-api-key": ["new", "alice"], ...from("192.0.2.1") }, refused],
  ["a field that some servers separate", { path: "/?token=new;token=ab", ...from("192.0.2.1") }, refused],
];

const servers = frameworks();

/** A server of the framework in front of a handler that answers "hello". */
async function start(t, framework, limiter, options = {}, answer = async () => "hello") {
  return serve(t, await servers[framework](limiter, options, answer));
}

for (const framework of Object.keys(servers)) {
  test(`${framework}: the same requests get the same bytes`, async (t) => {
    const port = await start(t, framework, of("api"));
    stopClock(t);
    for (const [what, request, expected] of TABLE) assert.deepEqual(await ask(port, request), expected, what);
  });

  test(`${framework}: a request without a key gets 400`, async (t) => {
    const port = await start(t, framework, of("named"));
    const detail = 'expected a request with "header:x-api-key", else "query:token"; found none of them';
    const expected = [...problem(400, "urn:tidegate:invalid-request", "Invalid request", { detail }), ...plain];
    assert.deepEqual(await ask(port, { path: "/?token=" }), expected);
  });

  test(`${framework}: a preflight takes nothing, and nothing else passes for one`, async (t) => {
    const ports = [await start(t, framework, of("api")), await start(t, framework, of("api"), { countPreflight: true })];
    const preflight = { ...alice, method: "OPTIONS", origin: "https://app.example", "access-control-request-method": "PUT" };
    for (let time = 0; time < 3; time++) assert.equal((await ask(ports[0], preflight))[0], 200);
    const others = [{ "x-http-method-override": "PUT" }, { path: "/?_method=PUT" }].map((more) => ({ ...preflight, ...more }));
    assert.deepEqual([(await ask(ports[0], others[0]))[0], (await ask(ports[0], others[1]))[0], (await ask(ports[0], { ...preflight, method: "GET" }))[0]], [200, 200, 429]);
    assert.deepEqual([(await ask(ports[1], preflight))[0], (await ask(ports[1], preflight))[0], (await ask(ports[1], preflight))[0]], [200, 200, 429]);
  });

  test(`${framework}: a key and a cost can come from functions`, async (t) => {
    const options = { key: async () => "user:42", cost: () => 7 };
    const port = await start(t, framework, of("named"), options);
    stopClock(t);
    const policy = ["ratelimit-policy", '"named";q=10;w=1'];
    assert.deepEqual(await ask(port), [200, "hello", ["ratelimit", '"named";r=3;t=1'], policy]);
    assert.equal((await ask(port))[0], 429);
    const unusual = await start(t, framework, of("named"), { key: () => "k".repeat(513) });
    assert.equal((await ask(unusual))[1].type, "urn:tidegate:invalid-key");
    const costly = await start(t, framework, of("named"), { key: () => "user:42", cost: 11 });
    assert.equal((await ask(costly))[1].type, "urn:tidegate:cost-exceeds-capacity");
  });

  test(`${framework}: whatever a function makes of a request, nothing breaks`, async (t) => {
    const noText = (found) => `\`key\`: expected a string or a number, found ${found}`;
    const wrong = [
      [["a", "b"], noText("an array")], [{}, noText("an object")], [{ length: 1e9 }, noText("an object")], [true, noText("a boolean")], [null, noText("null")],
      [NaN, noText("NaN")], [Symbol("a"), noText("a symbol")], [() => "a", noText("a function")],
      ["\ud800", "`key`: expected well-formed Unicode, found a lone surrogate"],
      ["", "`key`: expected 1 to 512 bytes, found 0"], ["x".repeat(600), "`key`: expected 1 to 512 bytes, found 600"],
      ["ip:zz", "`key`: expected an address such as 192.0.2.7 or 2001:db8::7 after `ip:`, found \"ip:zz\""],
    ];
    for (const [key, detail] of wrong) {
      const port = await start(t, framework, of("api"), { key: () => key });
      assert.deepEqual(await ask(port), [...problem(400, "urn:tidegate:invalid-key", "Invalid key", { detail }), ...plain]);
    }
    const numbers = await start(t, framework, of("api"), { key: () => 42 });
    assert.equal((await ask(numbers))[0], 200);
    for (const ip of [5, ["192.0.2.1"], { length: 1e9 }, { length: -1 }]) {
      const limiter = of("api");
      const port = await start(t, framework, limiter, { ip: () => ip });
      assert.equal(await askStatus(port), 500, JSON.stringify(ip));
      assert.equal(limiter.check("other").allowed, true);
    }
  });

  test(`${framework}: older forms of the headers`, async (t) => {
    const forms = {
      "draft-7": [["ratelimit", "limit=2, remaining=1, reset=2800"], ["ratelimit-policy", "2;w=3600"]],
      "draft-6": [
        ["ratelimit-limit", "2"], ["ratelimit-policy", "2;w=3600"], ["ratelimit-remaining", "1"], ["ratelimit-reset", "2800"],
      ],
      "x-ratelimit": [
        ["x-ratelimit-limit", "2"], ["x-ratelimit-remaining", "1"], ["x-ratelimit-reset", `${NOW_MS / 1000 + 2_800}`],
      ],
    };
    for (const [headers, expected] of Object.entries(forms)) {
      const port = await start(t, framework, of("api"), { headers });
      stopClock(t);
      assert.deepEqual(await ask(port, alice), [200, "hello", ...expected]);
    }
  });

  test(`${framework}: a lease is held until the response has finished, and renewed meanwhile`, async (t) => {
    const limiter = of("jobs");
    const store = new Watched(limiter);
    const handler = new Handler();
    const port = await start(t, framework, limiter, { store }, handler.answer);
    stopClock(t, ["Date", "setTimeout"]);
    const first = ask(port, alice);
    await handler.arrived();
    const [status, { type }] = await ask(port, alice);
    assert.equal(status, 429);
    assert.equal(type, "https://iana.org/assignments/http-problem-types#quota-exceeded");
    for (let renewal = 0; renewal < 6; renewal++) {
      const renewed = store.next("renew");
      mock.timers.tick(10_000);
      assert.equal(await renewed, true);
      await new Promise(setImmediate); // the middleware sets its next timer
    }
    assert.equal((await ask(port, alice))[0], 429, "after twice its time to live");
    const released = store.next("release");
    handler.finish();
    assert.equal((await first)[0], 200);
    await released;
    const last = ask(port, alice);
    await handler.arrived();
    handler.finish();
    assert.equal((await last)[0], 200);
  });

  test(`${framework}: a lease is released when the client is gone`, async (t) => {
    const limiter = of("jobs");
    const store = new Watched(limiter);
    const handler = new Handler();
    const port = await start(t, framework, limiter, { store }, handler.answer);
    const request = http.request({ port, host: "127.0.0.1", headers: alice, agent: false }).end();
    request.on("error", () => {}); // it is torn down below
    await handler.arrived();
    const released = store.next("release");
    request.destroy();
    await released;
    assert.equal(limiter.peek("header:x-api-key:alice", { cost: 1 }).allowed, true);
    handler.finish();
  });

  test(`${framework}: load that is shed gets 503`, async (t) => {
    const limiter = of("fleet");
    const handler = new Handler();
    const port = await start(t, framework, limiter, {}, handler.answer);
    const first = ask(port, alice);
    await handler.arrived();
    const [status, { type }] = await ask(port, alice);
    assert.equal(status, 503);
    assert.equal(type, "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity");
    handler.finish();
    await first;
  });

  test(`${framework}: whatever is thrown, no request passes and no process ends`, async (t) => {
    t.mock.method(console, "error", () => {}); // frameworks log it
    for (const thrown of [undefined, null, "route", "router", 5, "text", Symbol("a")]) {
      const fails = () => { throw thrown; };
      const rejects = async () => { throw thrown; };
      for (const options of [{ key: fails }, { key: rejects }, { cost: fails }, { ip: fails }, { ip: rejects }, { store: { check: rejects, renew() {}, release() {} } }]) {
        const port = await start(t, framework, of("api"), { key: () => "a", ...(options.ip && { key: () => undefined }), ...options });
        assert.equal(await askStatus(port), 500, `${String(thrown)}, ${Object.keys(options)}`);
      }
    }
  });

  test(`${framework}: a store that fails, and an \`onError\` that fails, end no process`, async (t) => {
    const errors = [];
    t.mock.method(console, "error", (...all) => errors.push(all));
    const lease = { name: "L", renewEveryUs: 1_000 };
    for (const [renew, release] of [[() => true, () => true], [() => { throw "renew"; }, () => { throw "release"; }], [async () => { throw "renew"; }, async () => { throw "release"; }]]) {
      for (const onError of [undefined, () => { throw new Error("onError"); }, async () => { throw new Error("onError"); }]) {
        const asked = signal();
        const store = { check: async () => ({ headers: [], lease }), renew: (...all) => (asked.resolve(), renew(...all)), release };
        const port = await start(t, framework, of("jobs"), { key: () => "a", store, onError }, async () => (await asked.promise, "hello"));
        assert.equal((await ask(port))[1], "hello");
      }
    }
    await new Promise(setImmediate);
    assert.ok(errors.length >= 4, "failures are told");
    for (const none of [null, undefined]) {
      const store = { check: async () => ({ headers: [], lease: none }), renew() {}, release() {} };
      assert.equal((await ask(await start(t, framework, of("jobs"), { key: () => "a", store })))[0], 200);
    }
  });

  test(`${framework}: an error of the store reaches the framework`, async (t) => {
    const limiter = of("api");
    const port = await start(t, framework, limiter);
    limiter.free();
    t.mock.method(console, "error", () => {}); // frameworks log it
    const request = http.request({ port, host: "127.0.0.1", headers: alice, agent: false }).end();
    const [{ statusCode }] = await once(request, "response");
    assert.equal(statusCode, 500);
  });
}

test("a lease of a fetch handler is held while its body is read, and no longer", async () => {
  const { rateLimit } = await load("tidegate/fetch");
  const limiter = of("jobs");
  const streams = [];
  const handler = async () => new Response(new ReadableStream({ start: (stream) => void streams.push(stream) }));
  const request = (options) => new Request("http://localhost/", { headers: alice, ...options });
  const send = async (options, answer = handler) => rateLimit(limiter, answer)(request(options));
  const isFree = () => limiter.peek("header:x-api-key:alice", { cost: 1 }).allowed;

  const read = await send();
  const text = read.text();
  assert.equal(isFree(), false);
  streams[0].enqueue(new TextEncoder().encode("hello"));
  streams[0].close();
  assert.equal(await text, "hello");
  assert.equal(isFree(), true);

  const cancelled = await send();
  assert.equal(isFree(), false);
  await cancelled.body.cancel();
  assert.equal(isFree(), true);

  const failed = await send();
  const reading = assert.rejects(failed.text(), /torn/);
  streams[2].error(new Error("torn"));
  await reading;
  assert.equal(isFree(), true);

  const leaving = new AbortController();
  await send({ signal: leaving.signal });
  assert.equal(isFree(), false);
  leaving.abort();
  assert.equal(isFree(), true);

  for (const [what, options, answer] of [
    ["no body is read in answer to HEAD", { method: "HEAD" }, handler],
    ["a response without a body", {}, async () => new Response(null, { status: 204 })],
    ["immutable headers", {}, async () => Response.redirect("http://localhost/other")],
  ]) {
    const { headers } = await send(options, answer);
    assert.equal(isFree(), true, what);
    assert.equal(headers.get("ratelimit-policy"), '"jobs";q=1;qu="concurrent-requests"');
  }
  await assert.rejects(send({}, async () => assert.fail("broken")), /broken/);
  assert.equal(isFree(), true, "a handler that fails");
});

test("the lease of a body that nobody reads is not renewed for ever", async (t) => {
  const { rateLimit } = await load("tidegate/fetch");
  const limiter = of("jobs");
  const store = new Watched(limiter);
  stopClock(t, ["Date", "setTimeout"]);
  const limited = rateLimit(limiter, async () => new Response("dropped"), { store });
  await limited(new Request("http://localhost/", { headers: alice }));
  for (let renewal = 0; renewal < 60; renewal++) {
    const renewed = store.next("renew");
    mock.timers.tick(10_000);
    await renewed;
    await new Promise(setImmediate);
  }
  mock.timers.tick(30_000);
  assert.equal(limiter.peek("header:x-api-key:alice", { cost: 1 }).allowed, true);
});

test("two limits on one request add up in the header", async (t) => {
  const { rateLimit } = await load("tidegate/express");
  const both = [rateLimit(of("api")), rateLimit(of("named"), { key: () => "all" })];
  const port = await serve(t, (request, response) => {
    both[0](request, response, () => both[1](request, response, () => response.end("hello")));
  });
  stopClock(t);
  const expected = [200, "hello", ["ratelimit", '"api";r=1;t=2800, "named";r=9;t=1'], ["ratelimit-policy", '"api";q=2;w=3600, "named";q=10;w=1']];
  assert.deepEqual(await ask(port, alice), expected);
});

for (const [framework, trust] of [["express", (app) => app.set("trust proxy", 1)], ["koa", (app) => { app.proxy = true; }]]) {
  test(`${framework}: the address is the one that the framework trusts`, async (t) => {
    const limiter = new Limiter({ limits: [{ algorithm: "fixed_window", limit: 1, period: "1h", start: "first" }] });
    const port = await serve(t, await servers[framework](limiter, {}, async () => "hello", trust));
    const status = async (address) => (await ask(port, from(address)))[0];
    const addresses = ["192.0.2.1", "192.0.2.2", "192.0.2.1:5001", "[2001:db8::7]:5001", "[2001:db8::8]"]; // Azure adds the port
    assert.deepEqual(await Promise.all(addresses.slice(0, 2).map(status)), [200, 200]);
    assert.deepEqual([await status(addresses[2]), await status(addresses[3]), await status(addresses[4])], [429, 200, 429]);
  });
}

test("anything but a limiter is refused at once, with what was found", async () => {
  const [{ rateLimit }, { Reporter }] = [await load("tidegate/express"), await load()];
  for (const [given, found] of [
    [undefined, "undefined"], [null, "null"], [{ limits: [] }, "object"], ["api", "string"], [toml(FILE), "object"],
    [new Reporter({ limit: "1/s" }), "object"],
  ]) {
    const message = `\`limiter\`: expected a Limiter, a RedisLimiter, a DurableLimiter or a RemoteLimiter, found ${found}`;
    assert.throws(() => rateLimit(given, { key: () => "a" }), { name: "TypeError", code: "INVALID_OPTION", message });
  }
});

test("a value of the wrong type is refused, and the limiter stays as it was", () => {
  const limiter = of("api");
  const facts = { header: () => undefined, query: "", ip: "192.0.2.1" };
  for (const value of [5, ["a"], {}, true, Object("abc"), Promise.resolve("x"), Symbol("a"), { length: -1 }]) {
    for (const wrong of [{ header: () => value }, { query: value }, { header: value }, { ip: value }]) {
      assert.throws(() => limiter.keyOf({ ...facts, ...wrong }), { name: "ArgumentError", code: /^INVALID_(REQUEST|OPTION)$/ });
      assert.equal(limiter.keyOf(facts), "ip:192.0.2.1");
    }
    assert.throws(() => limiter.admit("a", { cost: value === 5 ? "5" : value }), { code: "INVALID_COST" });
    assert.throws(() => limiter.admit("a", { headers: value }), { code: "INVALID_OPTION" });
  }
  for (const wrong of [undefined, null, 5, {}, { ...facts, limits: [] }]) {
    assert.throws(() => limiter.keyOf(wrong), { name: "ArgumentError", code: "INVALID_REQUEST" });
  }
  for (const wrong of [null, 5, { now: 5 }, { limits: [] }]) {
    assert.throws(() => limiter.admit("a", wrong), { name: "ArgumentError", code: "INVALID_REQUEST" });
  }
  assert.equal(limiter.keyOf({ ...facts, header: () => null }), "ip:192.0.2.1");
  assert.equal(limiter.admit("a").refusal, undefined);
  assert.equal(limiter.size, 1);
  limiter.free();
});

test("a link-local address counts without its zone, and an address that is none is the server's mistake", async (t) => {
  const keyOf = (ip) => of("api").keyOf({ header: () => undefined, query: "", ip });
  assert.equal(typeof keyOf("fe80::fc:ff:fe00:1"), "string");
  assert.equal(keyOf("fe80::fc:ff:fe00:1%eth0"), keyOf("fe80::fc:ff:fe00:1"));
  assert.equal(keyOf("[fe80::fc:ff:fe00:1%eth0]:5001"), keyOf("fe80::fc:ff:fe00:1"));
  for (const wrong of ["%eth0", "fe80::zz%eth0", "", undefined]) assert.equal(keyOf(wrong).refusal.status, 500);
  const { rateLimit } = await load("tidegate/fetch");
  const written = t.mock.method(console, "error", () => {});
  assert.equal((await rateLimit(of("api"), () => {}, { ip: () => undefined })(new Request("http://x/"))).status, 500);
  assert.match(written.mock.calls[0].arguments[1].message, /^the address of the client: expected .* found none$/);
});

test("a handler that returns no response, or a network error, keeps no lease", async () => {
  const { rateLimit } = await load("tidegate/fetch");
  for (const policy of ["api", "jobs"]) {
    const limiter = of(policy);
    const respond = (response) => rateLimit(limiter, () => response, { key: () => "k" })(new Request("http://x/"));
    assert.equal((await respond(Response.error())).type, "error");
    const body = new ReadableStream({ pull: (controller) => controller.enqueue(5) });
    const text = async () => (await respond(new Response(body))).text();
    if (policy === "jobs") await assert.rejects(text, { message: "expected bytes in the body of a response, found a number" });
    for (const wrong of [undefined, null, "text", 5]) {
      if (policy === "jobs") await assert.rejects(respond(wrong), { message: /^`handler`: expected a Response, found / });
    }
    if (policy === "jobs") assert.equal(limiter.peek("k").remaining, 1);
  }
});

test("options that cannot hold are refused at once", async (t) => {
  const { rateLimit } = await load("tidegate/express");
  assert.throws(() => rateLimit(of("api"), { headers: "draft-5" }), {
    code: "INVALID_OPTION",
    message: '`options.headers`: expected "draft-7", "draft-6" or "x-ratelimit", found "draft-5"',
  });
  for (const wrong of [{ headers: 7 }, { keys: () => "a" }, { key: "a" }, { cost: "5" }, { cost: -1 }, { cost: NaN }, { cost: 1.5 }, null, { store: {} }, { store: null }]) {
    assert.throws(() => rateLimit(of("api"), wrong), { code: "INVALID_OPTION" }, JSON.stringify(wrong));
  }
  for (const wrong of [undefined, null, { windowMs: 60_000 }]) assert.throws(() => rateLimit(wrong), /`limiter`: expected a Limiter/);
  t.after(() => delete Object.prototype.key);
  Object.prototype.key = () => assert.fail("an option of a prototype was read");
  const port = await start(t, "express", of("api"));
  assert.equal((await ask(port, alice))[0], 200);
  const keys = `jwt = { algorithms = ["HS256"], keys = "K" }\n[policies.p]\nkey = ["jwt:sub", "ip"]\n`;
  const limits = `limits = [{ algorithm = "fixed_window", limit = 2, period = "1h" }]`;
  assert.throws(() => rateLimit(new Limiter(toml(keys + limits))), { code: "INVALID_OPTION", message: /a source `jwt:`/ });
});

/** Stops the clock, and the timers that are named. */
function stopClock(t, apis = ["Date"]) {
  mock.timers.reset();
  mock.timers.enable({ apis, now: NOW_MS });
  t.after(() => mock.timers.reset());
}

/** A handler whose answers wait until the test says so. */
class Handler {
  #waiting = [];
  #arrived = signal();

  answer = () => new Promise((resolve) => {
    this.#waiting.push(resolve);
    this.#arrived.resolve();
  });

  async arrived() {
    await this.#arrived.promise;
    this.#arrived = signal();
  }

  finish() {
    for (const resolve of this.#waiting.splice(0)) resolve("hello");
  }
}

/** The store in memory, which tells when a call is done. */
class Watched extends MemoryStore {
  #next = {};

  next(call) {
    return new Promise((resolve) => {
      this.#next[call] = resolve;
    });
  }

  async renew(...all) {
    const live = await super.renew(...all);
    this.#next.renew?.(live);
    return live;
  }

  async release(...all) {
    await super.release(...all);
    this.#next.release?.();
  }
}

function signal() {
  let resolve;
  const promise = new Promise((done) => (resolve = done));
  return { promise, resolve };
}
