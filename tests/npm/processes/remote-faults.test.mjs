// A server that stops, dies or says what it cannot say: `onError` decides in time, nothing is granted by mistake, no error shows the
// token, and the limiter goes on once the server is back.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import { createServer as createSocketServer } from "node:net";
import { after, test } from "node:test";

import { startHost } from "../host.mjs";
import { load } from "../installed.mjs";
import { onPort } from "../ports.mjs";
import { decided, settled, until } from "../waiting.mjs";

const { RemoteLimiter } = await load("tidegate/remote");

const unhandled = [];
process.on("unhandledRejection", (error) => unhandled.push(error));
after(() => assert.deepEqual(unhandled, []));

const TOKEN = "secret-token";
const POLICIES = `
[policies.p]
limits = [{ algorithm = "fixed_window", limit = 1000, period = "36500d" }]

[policies.jobs]
limits = [{ algorithm = "concurrency", capacity = 5, time_to_live = "1h" }]

[policies.tokens]
limits = [{ algorithm = "fixed_window", limit = 1000, period = "36500d" }]
reservations = {}
`;
const env = { TIDEGATE_TOKEN: TOKEN, TIDEGATE_ADMIN_TOKEN: TOKEN };
const of = (url, options) => new RemoteLimiter({ url, policy: "p", token: TOKEN, deadline: "20s", ...options });
/** For calls that get no answer. */
const SHORT = { deadline: "100ms" };

/** A host that ends with its test, also if that fails. */
async function start(t, options) {
  const host = await startHost(POLICIES, { env, ...options });
  t.after(() => host.stop());
  return host;
}

test("the server stops, and goes on", async (t) => {
  const { host, url } = await start(t);
  const [open, closed] = ["open", "closed"].map((onError) => of(url, { ...SHORT, onError }));
  const [jobs, tokens] = ["jobs", "tokens"].map((policy) => of(url, { ...SHORT, policy }));
  assert.ok((await decided(() => closed.check("a"))).remaining >= 900);
  host.kill("SIGSTOP");
  const answers = await Promise.all(Array.from({ length: 500 }, (_, place) => [open, closed][place % 2].check(`key-${place % 50}`)));
  const why = "server: no answer within 100 ms";
  for (const [place, answer] of answers.entries()) assert.deepEqual(answer, { allowed: place % 2 === 0, degraded: why });
  const grant = await open.decide("a", { cost: 3 });
  assert.deepEqual({ ...grant }, { allowed: true, degraded: why });
  assert.equal(await grant.refund(), undefined, "nobody knows that it was taken");
  await assert.rejects(closed.block("blocked", "1m"), { name: "LimiterError", code: "UNAVAILABLE", message: why });
  await assert.rejects(open.reset("blocked"), { code: "UNAVAILABLE" });
  const held = await jobs.acquire("a");
  assert.deepEqual([held.allowed, held.degraded], [false, why]);
  assert.match(held.lease, /^[0-9a-f]{32}$/, "so that it can be released");
  await assert.rejects(held.release(), { code: "UNAVAILABLE" });
  assert.match((await tokens.reserve("a", { cost: 7 })).id, /^[0-9a-f]{32}$/, "so that it can be committed");
  assert.deepEqual(await tokens.commit("a", "id", 5), { allowed: false, degraded: why, id: "id" });
  host.kill("SIGCONT");
  assert.ok((await decided(() => closed.check("a"))).remaining >= 900);
  await of(url, { policy: "jobs" }).release("a", held.lease);
  await Promise.all([open.close(), closed.close()]);
});

test("while the server does not answer, no call waits for it, and one question at a time asks whether it is back", async (t) => {
  const asked = [];
  let isSilent = true;
  const url = await serve(t, createServer((request, response) => {
    asked.push(request.url);
    if (!isSilent) json(decision)(request, response);
  }));
  const limiter = of(url, { deadline: "1s", onError: "open" });
  const late = { allowed: true, degraded: "server: no answer within 1000 ms" };
  for (let time = 0; time < 8; time++) assert.deepEqual(await limiter.check(`key-${time}`), late);
  const { degraded, ...admitted } = await limiter.admit("a");
  assert.deepEqual([admitted, degraded], [{ headers: [] }, late.degraded]);
  await assert.rejects(limiter.reset("a"), { code: "UNAVAILABLE", message: late.degraded });
  assert.deepEqual(asked.filter((path) => path !== "/healthz"), ["/v1/check"]);
  await until(() => asked.length > 1);
  isSilent = false;
  assert.equal((await decided(() => limiter.check("a"))).remaining, 8);
});

test("a question that is lost is asked again, after a while without calls the next call asks, and an error at once is no silence", async (t) => {
  let now = 0;
  t.mock.method(performance, "now", () => now);
  t.mock.timers.enable({ apis: ["setTimeout"] });
  t.mock.method(AbortSignal, "timeout", () => new AbortController().signal);
  const sent = [];
  const limiter = of("http://nobody", { ...SHORT, onError: "open", fetch: (url) => new Promise((_, reject) => sent.push({ path: url.slice(13), reject })) });
  const check = async () => {
    const answer = limiter.check("a");
    await settled();
    t.mock.timers.tick(100);
    await answer;
    await settled();
  };
  const paths = async (passedMs) => {
    now += passedMs;
    for (let time = 0; time < 3; time++) await check();
    return sent.splice(0).map(({ path, reject }) => (last = reject, path));
  };
  let last;
  assert.deepEqual(await paths(0), ["/v1/check", "/healthz"]);
  assert.deepEqual([await paths(100), await paths(1)], [[], ["/healthz"]]);
  assert.deepEqual(await paths(10_101), ["/v1/check"]);
  last(new Error("refused"));
  assert.deepEqual(await paths(101), ["/healthz"]);
  last(new Error("refused"));
  await settled();
  assert.equal((await paths(0))[0], "/v1/check");
});

test("the server dies, and another one starts", async (t) => {
  const first = await onPort((port) => start(t, { listen: `127.0.0.1:${port}` }));
  const limiter = of(first.url);
  await decided(() => limiter.check("a"));
  const asked = limiter.check("a");
  await first.stop();
  for (const answer of [await asked, await limiter.check("a")]) {
    assert.equal(typeof answer.degraded, "string");
    assert.deepEqual([answer.allowed, answer.remaining], [false, undefined]);
  }
  assert.match((await limiter.check("a")).degraded, /^server: fetch failed: .*ECONNREFUSED/);
  await start(t, { listen: first.address });
  assert.equal((await decided(() => limiter.check("b"))).remaining, 999);
});

test("a call ends with the caller's signal", async (t) => {
  const { host, url } = await start(t);
  host.kill("SIGSTOP");
  const limiter = of(url, { deadline: "1m", onError: "open" });
  const [ending, why] = [new AbortController(), "the caller's signal has ended the call"];
  const asked = [limiter.check("a", { signal: ending.signal }), limiter.peek("a", { signal: ending.signal }), limiter.reserve("a", { signal: ending.signal, id: "x" })];
  const other = limiter.check("b");
  ending.abort();
  for (const answer of await Promise.all(asked)) assert.deepEqual([answer.allowed, answer.degraded], [true, why]);
  assert.equal((await limiter.check("a", { signal: ending.signal })).degraded, why);
  await assert.rejects(limiter.block("a", "1s", { signal: AbortSignal.timeout(20) }), { code: "UNAVAILABLE", message: why });
  host.kill("SIGCONT");
  assert.equal((await other).degraded, undefined, "what shared its call has its answer");
  await assert.rejects(limiter.check("a", { signal: {} }), { code: "INVALID_REQUEST" });
  await limiter.close();
});

test("a call that nobody ends, as one of a Worker's request that was cancelled, counts no longer than its deadline", async (t) => {
  let now = 0;
  t.mock.method(performance, "now", () => now);
  t.mock.timers.enable({ apis: ["setTimeout"] }); // a request that was cancelled has no timers
  const [limiter, closing] = [of, of].map((make) => make("http://nobody", { ...SHORT, fetch: () => new Promise(() => {}) }));
  void limiter.check("a");
  void closing.check("a");
  assert.equal(limiter.waiting, 1);
  now += 1_101; // the deadline, and how late its timer may be
  assert.equal(limiter.waiting, 0);
  const closed = closing.close();
  t.mock.timers.tick(1);
  await closed;
});

test("a blocked event loop is no outage", async (t) => {
  const { host, url } = await start(t);
  const limiter = of(url, SHORT);
  await decided(() => limiter.check("a"));
  host.kill("SIGSTOP");
  const asked = limiter.check("a");
  for (let turn = 0; turn < 3; turn++) await new Promise(setImmediate); // the request is sent
  host.kill("SIGCONT"); // so the answer comes while the event loop is blocked, as do those of others
  for (const until = performance.now() + 300; performance.now() < until;) execFileSync(process.execPath, ["-e", `fetch("${url}/healthz")`]);
  assert.equal((await asked).degraded, undefined);
});

const decision = { policy: "p", allowed: true, limit: 9, remaining: 8, retry_after_us: 0, reset_after_us: 1, at_us: 1, limits: [] };
const limit = { name: "a", allowed: true, limit: 9, remaining: 8, retry_after_us: 0, reset_after_us: 1 };
const json = (body, status = 200) => (_, response) => response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
const problem = (status, type) => json({ type, title: "a", status, detail: `about ${TOKEN}` }, status);
const text = (body, status = 200, headers = { "content-type": "text/html" }) => (_, response) => response.writeHead(status, headers).end(body);
const without = (name) => Object.fromEntries(Object.entries(decision).filter(([own]) => own !== name));

/** What is no answer of the API. */
const HOSTILE = {
  "nothing": text(""),
  "HTML": text("<html>welcome</html>"),
  "HTML with an error": text("<html>not found</html>", 404),
  "an error of a proxy": text("bad gateway", 502),
  "an error of the server": problem(500, "urn:tidegate:internal-error"),
  "another problem": problem(400, "about:blank"),
  "a problem of the API with the status of an answer": problem(200, "urn:tidegate:invalid-request"),
  "a problem without a detail": json({ type: "urn:tidegate:invalid-request" }, 400),
  "a problem that is a list": json(["urn:tidegate:invalid-request"], 400),
  "a request for another token": text("", 401, { "www-authenticate": "Basic" }),
  "no content": text(undefined, 204, { "cache-control": "max-age=60" }),
  "a redirect": text("", 302, { location: "/granted" }),
  "a redirect that keeps the method": text("", 307, { location: "/granted" }),
  "not modified": text(undefined, 304, {}),
  "null": json(null),
  "a list": json([true]),
  "a list of the values": json(Object.values(decision)),
  "a text": json("allowed"),
  "true": json(true),
  "an empty object": json({}),
  "another policy": json({ ...decision, policy: "q" }),
  "allowed as a text": json({ ...decision, allowed: "true" }),
  "allowed as a number": json({ ...decision, allowed: 1 }),
  "a negative number": json({ ...decision, remaining: -1 }),
  "a fraction": json({ ...decision, limit: 0.5 }),
  "a number beyond 2^53": json({ ...decision, retry_after_us: 2 ** 53 }),
  "a number as a text": json({ ...decision, remaining: "8" }),
  "null for a number": json({ ...decision, remaining: null }),
  "infinity": text(JSON.stringify(decision).replace("8", "1e999")),
  "limits that are no list": json({ ...decision, limits: { length: 0 } }),
  "a limit that is none": json({ ...decision, limits: [null] }),
  "a limit without a name": json({ ...decision, limits: [{ ...limit, name: undefined }] }),
  "a limit whose name is a number": json({ ...decision, limits: [{ ...limit, name: 7 }] }),
  "degraded without a reason": json({ policy: "p", allowed: true, degraded: true }),
  "a prototype": text(`{"__proto__":${JSON.stringify(decision)}}`),
  "half of the JSON": text(JSON.stringify(decision).slice(0, -9)),
  "JSON and more": text(`${JSON.stringify(decision)}{}`),
  "bytes that are no text": text(Buffer.concat([Buffer.from(JSON.stringify(decision).slice(0, -1)), Buffer.from(',"a":"\xff"}', "latin1")])),
  "deep JSON": text("[".repeat(1 << 20)),
  "half of the body": (_, response) => {
    response.writeHead(200, { "content-length": "1000" }).write(JSON.stringify(decision));
    setTimeout(() => response.destroy(), 10);
  },
  "a body that never ends": (_, response) => {
    response.writeHead(200).write(JSON.stringify(decision));
  },
  "100 MB": (_, response) => {
    response.writeHead(200, { "content-type": "application/json" });
    const chunk = Buffer.alloc(1 << 20, " ");
    let left = 100;
    const more = () => {
      while (left-- > 0) if (!response.write(chunk)) return response.once("drain", more);
      response.end(JSON.stringify(decision));
    };
    more();
  },
  "a closed connection": (request) => request.socket.destroy(),
  ...Object.fromEntries(Object.keys(decision).map((name) => [`an answer without \`${name}\``, json(without(name))])),
};

/** Serves on a free port of this machine until the test ends. */
async function serve(t, server) {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections?.();
    server.close();
  });
  return `http://127.0.0.1:${server.address().port}`;
}

for (const [what, answer] of Object.entries(HOSTILE)) {
  test(`${what}: nothing is granted, and the next answer counts`, async (t) => {
    let isHostile = true;
    const url = await serve(t, createServer((request, response) => {
      request.resume();
      (isHostile && request.url !== "/granted" ? answer : json(decision))(request, response);
    }));
    const isEndless = what === "a body that never ends";
    const options = isEndless ? SHORT : {};
    const [closed, open] = ["closed", "open"].map((onError) => of(url, { ...options, onError }));
    const found = await closed.decide("a");
    assert.deepEqual([found.allowed, typeof found.degraded, found.remaining], [false, "string", undefined], found.degraded);
    assert.doesNotMatch(found.degraded, /secret/);
    assert.equal(/no answer within/.test(found.degraded), isEndless, found.degraded);
    assert.equal((await open.check("a")).allowed, true, "as the option says");
    const together = await Promise.all([closed.check("a"), closed.check("b")]);
    for (const { allowed, degraded } of together) assert.deepEqual([allowed, typeof degraded], [false, "string"]);
    for (const call of ["peek", "acquire", "reserve", "reset"]) {
      const one = await closed[call]("a").catch((error) => ({ allowed: false, degraded: error.code }));
      assert.deepEqual([one.allowed, typeof one.degraded], [false, "string"], call);
    }
    await assert.rejects(open.block("a", "1m"), { code: "UNAVAILABLE" });
    const { refusal } = await closed.admit("a");
    assert.equal(refusal.status, 503);
    const { degraded, ...passed } = await open.admit("a");
    assert.deepEqual([passed, typeof degraded], [{ headers: [] }, "string"]);
    isHostile = false;
    const next = isEndless ? decided(() => closed.check("a")) : closed.check("a");
    assert.deepEqual([(await next).remaining, closed.waiting], [8, 0]);
  });
}

test("an answer of the server's own `on_error` names the lease and the reservation", async (t) => {
  const url = await serve(t, createServer(json({ policy: "p", allowed: true, degraded: "the store is away" })));
  const limiter = of(url);
  const away = { allowed: true, degraded: "the store is away" };
  assert.deepEqual(await limiter.check("a"), away);
  const { lease, ...held } = { ...await limiter.acquire("a") };
  assert.deepEqual([held, lease.length], [away, 32]);
  assert.deepEqual(await limiter.reserve("a", { id: "mine" }), { ...away, id: "mine" });
  await assert.rejects(limiter.reset("a"), { code: "UNAVAILABLE", message: "the store is away" });
});

test("an invalid answer to middleware lets a request pass only if `onError` says so", async (t) => {
  let answer;
  const url = await serve(t, createServer((request, response) => json(answer)(request, response)));
  const [closed, open] = ["closed", "open"].map((onError) => of(url, { onError }));
  const header = { name: "ratelimit", value: "a" };
  const body = JSON.stringify({ type: "urn:tidegate:denied", status: 403 });
  const admission = { policy: "p", headers: [header] };
  for (const wrong of [
    { ...admission, policy: "q" }, { policy: "p" }, { ...admission, headers: {} }, { ...admission, headers: [["ratelimit", "a"]] },
    { ...admission, headers: [{ ...header, value: 1 }] }, { ...admission, headers: [{ ...header, name: "set-cookie" }] },
    { ...admission, refusal: true }, { ...admission, refusal: { status: 200, body } }, { ...admission, refusal: { status: 403, body: "no" } },
    { ...admission, refusal: { status: 403, body: body.replace("denied", "unauthorized") } }, { ...admission, refusal: { status: 403, body: body + " ".repeat(16_384) } },
    { ...admission, lease: { name: 1, renew_every_us: 1 } }, { ...admission, lease: { name: "a" } }, { ...admission, reservation: { id: "a", units: -1 } },
    { ...admission, grant: { at_us: 1 } }, { ...admission, remaining: "1" },
  ]) {
    answer = wrong;
    assert.equal((await closed.admit("a")).refusal?.status, 503, JSON.stringify(wrong));
    const { degraded, ...passed } = await open.admit("a");
    assert.deepEqual([passed, typeof degraded], [{ headers: [] }, "string"], JSON.stringify(wrong));
  }
  answer = { ...admission, lease: { name: "a", renew_every_us: 1 }, grant: { at_us: 1, units: 2 }, remaining: 3 };
  const passed = { headers: [["ratelimit", "a"]], lease: { name: "a", renewEveryUs: 1 }, grant: { atUs: 1, units: 2 }, remaining: 3 };
  assert.deepEqual(await closed.admit("a"), passed);
  answer = { ...admission, refusal: { status: 403, body } };
  assert.deepEqual(await open.admit("a"), { headers: [["ratelimit", "a"]], refusal: { status: 403, body } });
});

test("decisions that are not those of a batch: none of it is granted", async (t) => {
  let answer;
  const url = await serve(t, createServer((_, response) => json(answer)(_, response)));
  const limiter = of(url);
  for (const decisions of [undefined, null, {}, [], [decision], [decision, decision, decision], { 0: decision, 1: decision, length: 2 }]) {
    answer = { decisions };
    for (const { allowed, degraded } of await Promise.all([limiter.check("a"), limiter.check("b")])) {
      assert.deepEqual([allowed, degraded], [false, "server: expected 2 decisions, found another answer"]);
    }
  }
  answer = { decisions: [decision, { ...decision, allowed: 1 }] };
  assert.deepEqual((await Promise.all([limiter.check("a"), limiter.check("b")])).map(({ allowed }) => allowed), [true, false]);
});

test("errors of the API show what the server says, and no token", async (t) => {
  const url = await serve(t, createServer(problem(401, "urn:tidegate:unauthorized")));
  await assert.rejects(of(url).check("a"), { code: "UNAUTHORIZED", message: "about …" });
  const sent = [];
  const failing = (_, { headers, redirect }) => {
    sent.push({ ...headers, redirect });
    throw new Error(`cannot send ${TOKEN}`, { cause: new Error(TOKEN.repeat(100)) });
  };
  const { degraded } = await of(url, { fetch: failing }).check("a");
  assert.deepEqual(sent, [{ authorization: `Bearer ${TOKEN}`, "content-type": "application/json", redirect: "manual" }]);
  assert.match(degraded, /^server: cannot send …: …+$/);
  assert.ok(degraded.length <= 300);
});

test("a server that drips: the deadline holds for the whole answer", async (t) => {
  const url = await serve(t, createSocketServer((socket) => {
    socket.on("error", () => {});
    const text = `HTTP/1.1 200 OK\r\ncontent-length: 400\r\n\r\n${" ".repeat(400)}`;
    let at = 0;
    const timer = setInterval(() => (socket.writable ? socket.write(text[at++ % text.length]) : clearInterval(timer)), 5);
    socket.on("close", () => clearInterval(timer));
  }));
  assert.equal((await of(url, SHORT).check("a")).degraded, "server: no answer within 100 ms");
});

test("what another library has put on a prototype is not sent, and not read", async (t) => {
  const bodies = [];
  const url = await serve(t, createServer(async (request, response) => {
    bodies.push(`${request.method} ${request.rawHeaders.includes("evil")} ${(await request.setEncoding("utf8").toArray()).join("")}`);
    json(without("allowed"))(request, response);
  }));
  const polluted = { allowed: true, toJSON: () => ({ policy: "other" }), method: "PUT", authorization: "evil", degraded: "x", policy: "p", cost: 9, token: "evil" };
  for (const [name, value] of Object.entries(polluted)) {
    Object.defineProperty(Object.prototype, name, { value, configurable: true, writable: true });
  }
  try {
    const { allowed } = await of(url, { token: undefined }).check("a");
    assert.equal(allowed, false);
  } finally {
    for (const name of Object.keys(polluted)) delete Object.prototype[name];
  }
  assert.deepEqual(bodies, ['POST false {"policy":"p","key":"a"}']);
});
