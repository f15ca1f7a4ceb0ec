// The limiter on Durable Objects, in a Worker as its user writes it: wrangler bundles it out of the packed tarball, and workerd runs it.
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";

import { bundle, embedded, run } from "../deployed.mjs";
import { startHost } from "../host.mjs";
import { load, project } from "../installed.mjs";
import { readVectors } from "../vectors.mjs";
import { until } from "../waiting.mjs";

const folder = project();
const { Limiter } = await load();
const readme = readFileSync(join(folder, "node_modules/tidegate/README.md"), "utf8");
const [, section] = /^## Durable Objects\n(.*?)^## /ms.exec(readme);
const [, configuration] = /^```toml\n(.*?)^```$/ms.exec(section);
const [, shown] = /^```ts\n(.*?)^```$/ms.exec(section);

/** Bundles a Worker with the configuration of the README. */
function bundled(name, files) {
  const place = join(folder, name);
  mkdirSync(place);
  for (const [file, text] of Object.entries(files)) writeFileSync(join(place, file), text);
  writeFileSync(join(place, "wrangler.toml"), configuration);
  return bundle(place, "worker.js");
}
const read = (file) => readFileSync(fileURLToPath(new URL(`../${file}`, import.meta.url)), "utf8");
const modules = bundled("app", { "worker.js": read("durable-app.js"), "replay.js": read("replay.js"), "durable-trap.js": read("durable-trap.js") });

const running = [];
after(() => Promise.all(running.map((server) => server.stop())));

/** Runs isolates of the Worker, which share the objects of the first one. They may ask the server at an address. */
async function start({ name = `run-${running.length}`, isolates = 1, trusts = false, of = modules, address } = {}) {
  const where = join(folder, name);
  mkdirSync(join(where, "storage"), { recursive: true });
  const all = Array.from({ length: isolates }, (_, place) => `isolate${place}`);
  const worker = (name, place) => `const ${name} :Workerd.Worker = (
  modules = [${of.map((module) => embedded(where, module)).join(", ")}],
  compatibilityDate = "2026-11-01",
  bindings = [(name = "KEYS", durableObjectNamespace = ${place === 0 ? '"Keys"' : '(className = "Keys", serviceName = "isolate0")'})
    , (name = "SELF", service = "${name}")
    ${address === undefined ? "" : ', (name = "SERVER", service = "server")'}
    ${trusts ? ', (name = "TIDEGATE_TRUST_CALLER_TIME", text = "true")' : ""}],
  ${place === 0 ? 'durableObjectNamespaces = [(className = "Keys", uniqueKey = "keys", enableSql = true)], durableObjectStorage = (localDisk = "disk")' : ""});`;
  const config = `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [${all.map((name) => `(name = "${name}", worker = .${name})`).join(", ")}, (name = "disk", disk = (path = "${where}/storage", writable = true))
    ${address === undefined ? "" : `, (name = "server", external = (address = "${address}", http = ()))`}],
  sockets = [${all.map((name) => `(name = "${name}", address = "127.0.0.1:0", http = (), service = "${name}")`).join(", ")}]);
${all.map(worker).join("\n")}
`;
  const server = await run(where, config, isolates);
  running.push(server);
  const post = async (path, given, isolate = 0) => {
    const response = await fetch(server[`isolate${isolate}`] + path, { method: "POST", body: JSON.stringify(given) });
    const text = await response.text();
    assert.equal(response.status, 200, text);
    return JSON.parse(text);
  };
  const ask = async (policy, calls, { options, nth, isolate } = {}) => (await post("/ask", [{ policy, options, nth, calls }], isolate))[0];
  return { ...server, post, ask };
}

const bucket = { algorithm: "token_bucket", capacity: 5, rate: "1/30d" };
const POLICY = { limits: [bucket] };
const server = await start({ isolates: 2 });

test("the configuration and the code of the README limit a Worker", async () => {
  const { isolate0: url } = await start({ of: bundled("readme", { "worker.js": shown }) });
  const get = (ip) => fetch(url, { headers: { "cf-connecting-ip": ip } });
  const statuses = [];
  for (let i = 0; i < 4; i++) statuses.push((await get("192.0.2.1")).status);
  assert.deepEqual(statuses, [200, 200, 200, 429]);
  assert.equal((await get("192.0.2.2")).status, 200);
});

test("all vectors", async (t) => {
  const { post } = await start({ trusts: true });
  for (const [name, vector] of Object.entries(readVectors())) {
    await t.test(`${name}: ${vector.about}`, async () => {
      assert.equal((await post("/replay", { name, vector })).steps, vector.steps.length);
    });
  }
});

test("isolates, limiters and requests at once share one limit", async () => {
  const policy = { limits: [{ ...bucket, capacity: 40 }] };
  const lists = [0, 1, 0, 1, 0, 1].map((isolate, nth) => server.ask(policy, Array(25).fill(["check", "shared"]), { isolate, nth }));
  const answers = (await Promise.all(lists)).flat();
  assert.equal(answers.length, 150);
  assert.equal(answers.filter(({ allowed }) => allowed).length, 40);
  assert.deepEqual(answers.filter(({ degraded, error }) => degraded ?? error), []);
});

test("the answers are those of a limiter in memory", async () => {
  const policies = [
    { limits: [bucket, { algorithm: "fixed_window", name: "day", limit: 9, period: "24h", start: "first" }], deny: ["denied"], allow: ["free"] },
    { limits: [{ algorithm: "concurrency", capacity: 2, time_to_live: "1h" }] },
    { limits: [{ ...bucket, capacity: 50 }], reservations: {} },
    { limits: [bucket], shadow: true },
    { limits: [{ algorithm: "sliding_log", rates: ["4/300d", "5/600d"], min_gap: "1us" }] },
  ];
  const calls = [
    ["check", "a"], ["check", "a", { cost: 3 }], ["decide", "a", { cost: 2, lease: "d" }], ["peek", "a", { cost: 1 }], ["refund", "a", 2], ["check", "a", { cost: 6 }],
    ["check", "denied"], ["check", "free"], ["acquire", "l", { lease: "one" }], ["acquire", "l", { lease: "two" }], ["acquire", "l", { lease: "three" }],
    ["renew", "l", "one"], ["release", "l", "two"], ["release", "l", "two"], ["reserve", "r", { cost: 20, id: "x" }], ["commit", "r", "x", 5],
    ["explain", "a"], ["explain", "a", { cost: 4 }], ["explain", "a", { cost: 6 }], ["explain", "denied"], ["explain", "free"], ["explain", "l"], ["explain", "l", { lease: "one" }],
    ["block", "a", "1h"], ["explain", "a"], ["check", "a"], ["reset", "a"], ["peek", "a"], ["check", ""], ["check", "a", { cost: 0.5 }], ["check", "a", { limits: [] }],
    ["budget", "a", "one", { wants: 1 }], ["report", "a", { admitted: 1, suppressed: 0 }],
  ];
  // times differ, and so does what depends on them
  const timelessText = (text) => text.replace(/(?<=(it passes in|is blocked for another) ).*\.$/, "…");
  const timeless = (answer) => JSON.parse(JSON.stringify(answer, (name, value) => (/Us$/.test(name) ? undefined : name === "text" ? timelessText(value) : value)));
  for (const policy of policies) {
    const limiter = new Limiter(policy);
    for (const [method, ...given] of calls) {
      if (given[1]?.limits) continue; // only in memory
      let expected;
      try {
        expected = limiter[method](...given);
      } catch ({ name, code, message }) {
        expected = { error: { name, code, message } };
      }
      const [found] = await server.ask(policy, [[method, ...given]], { options: { prefix: `like-${policies.indexOf(policy)}` } });
      if (expected.error !== undefined && found.error !== undefined) delete found.error.message, delete expected.error.message;
      assert.deepEqual(timeless(found), timeless(expected), `${method} ${JSON.stringify(given)} by ${JSON.stringify(policy)}`);
    }
  }
});

test("policies count apart by their names, or by prefixes, on one binding", async () => {
  const file = { policies: { one: POLICY, two: { limits: [{ ...bucket, capacity: 9 }] } } };
  const remaining = async (policy, options) => (await server.ask(policy, [["check", "apart"]], { options }))[0].remaining;
  assert.deepEqual([await remaining(file, { policy: "one" }), await remaining(file, { policy: "two" })], [4, 8]);
  assert.deepEqual([await remaining(POLICY, { prefix: "a:b/c#" }), await remaining(POLICY, { prefix: "a:b" })], [4, 4]);
  assert.deepEqual([await remaining(POLICY, { prefix: "a:b/c#" }), await remaining(JSON.stringify({ limits: [{ ...bucket, capacity: 7 }] }), { prefix: "text" })], [3, 6]);
});

test("an object that has ended keeps its states, and learns the policy again", async () => {
  const name = "evicted";
  const policy = { policies: { evicted: POLICY } };
  const first = await start({ name });
  assert.equal((await first.ask(policy, [["check", "k", { cost: 2 }]]))[0].remaining, 3);
  await first.post("/abort", { object: "evicted:k" });
  assert.equal((await first.ask(policy, [["check", "k"]]))[0].remaining, 2);
  await first.stop();
  running.pop();
  const second = await start({ name });
  assert.equal((await second.ask(policy, [["check", "k"]]))[0].remaining, 1);
});

test("what a request asks at once shares one call to each object, and a known policy is not told again", async () => {
  const { ask, post } = await start();
  const policy = { limits: [{ ...bucket, capacity: 100 }] };
  await ask(policy, [["check", "a"]]);
  assert.equal(await post("/calls"), 2);
  await ask(policy, [["check", "a"], ["check", "b"], ["check", "a"]]);
  assert.equal(await post("/calls"), 2);
  const shards = { ...policy, placement: "shard:1" };
  await ask(shards, [["check", "a"], ["check", "b"], ["check", "c"]]);
  assert.equal(await post("/calls"), 2);
});

test("an isolate repeats refusals, if the policy lets it", async () => {
  const { ask, post } = await start();
  const once = { limits: [{ ...bucket, capacity: 1 }] };
  for (const [policy, calls] of [[{ policies: { asks: once } }, 1], [{ policies: { remembers: { ...once, remember: "1h" } } }, 0]]) {
    await ask(policy, [["check", "a"]]);
    await ask(policy, [["check", "a"]]);
    await post("/calls");
    assert.deepEqual((await ask(policy, Array(9).fill(["check", "a"]))).map(({ allowed }) => allowed), Array(9).fill(false));
    assert.equal(await post("/calls"), calls);
  }
});

test("an isolate spends units that it took in advance, if the policy lets it, and no more than the limit", async () => {
  const { ask, post } = await start();
  const policy = { limits: [{ ...bucket, capacity: 120 }], local: { most: 50, time: "1h" } };
  let granted = 0;
  for (let i = 0; i < 100; i++) granted += Number((await ask(policy, [["check", "a"]]))[0].allowed);
  assert.equal(granted, 100);
  const calls = await post("/calls");
  assert.ok(calls < 50, `${calls} calls for 100 checks`);
  for (let i = 0; i < 100; i++) granted += Number((await ask(policy, [["check", "a"]]))[0].allowed);
  assert.equal(granted, 120);
});

test("requests that share calls send their own, and all get answers", async () => {
  const policy = { limits: [{ ...bucket, capacity: 1_000 }], placement: "shard:1", share_calls: true };
  const answers = await Promise.all(Array.from({ length: 60 }, (_, i) => server.ask(policy, [["check", `k${i % 7}`]], { options: { prefix: "calls" } })));
  assert.deepEqual(answers.flat().filter(({ allowed, degraded }) => !allowed || degraded !== undefined), []);
});

test("grants give back, and leases are held while a function runs", async () => {
  assert.deepEqual(await server.post("/refund", { policy: { policies: { back: POLICY } }, key: "k" }), [2, 4]);
  const places = { policies: { places: { limits: [{ algorithm: "concurrency", capacity: 2, time_to_live: "1h" }] } } };
  assert.deepEqual(await server.post("/run", { policy: places, key: "k" }), [1, 2]);
});

/** Waits until so many requests wait in this isolate. */
const waiting = ({ post }, policy, count) => until(async () => await post("/waiting", { policy }) === count);

test("requests on a key are granted one after another, at the rate of the bucket", async () => {
  const policy = { policies: { queue: { limits: [{ algorithm: "token_bucket", capacity: 1, rate: "20/s" }] } } };
  const answers = await Promise.all(Array.from({ length: 5 }, () => server.ask(policy, [["waitFor", "k", { jitter: 0 }]])));
  const times = answers.map(([{ allowed, atUs }]) => (assert.equal(allowed, true), atUs)).sort((one, other) => one - other);
  for (let place = 1; place < 5; place++) assert.ok(times[place] - times[place - 1] >= 50_000, times.join());
});

test("what one request gives back wakes another one, and only the first of a key asks", async () => {
  const policy = { policies: { jobs: { limits: [{ algorithm: "concurrency", capacity: 1, time_to_live: "1h" }] } } };
  const { ask, ...own } = await start();
  await ask(policy, [["acquire", "k", { lease: "held" }]]);
  const waits = [];
  for (let place = 0; place < 3; place++) {
    waits.push(ask(policy, [["waitFor", "k", { lease: `lease-${place}` }]]));
    await waiting(own, policy, place + 1);
  }
  await own.post("/calls");
  for (const [place, wait] of waits.entries()) {
    await ask(policy, [["release", "k", place === 0 ? "held" : `lease-${place - 1}`]]);
    const [{ allowed, lease }] = await wait;
    assert.deepEqual([allowed, lease], [true, `lease-${place}`]);
  }
  assert.ok(await own.post("/calls") < 20);
});

/** Two requests wait for a lease, and the first one is cancelled: the second one gets the lease. */
async function assertHoldsUpNobody({ ask, post }, policy, options) {
  const waits = (lease) => [["waitFor", "k", { lease }]];
  await ask(policy, [["acquire", "k", { lease: "held" }]], { options });
  await post("/leave", { lists: [{ policy, options, calls: waits("first") }] });
  let isOver = false;
  const second = ask(policy, waits("second"), { options }).finally(() => { isOver = true; });
  // a server may decide the first request after the release, before it sees that nobody waits for the answer
  await until(async () => isOver || void await ask(policy, [["release", "k", "held"], ["release", "k", "first"]], { options }));
  assert.equal((await second)[0].lease, "second");
}

test("a request that is cancelled while it waits holds up nobody", async () => {
  const policy = { policies: { jobs: { limits: [{ algorithm: "concurrency", capacity: 1, time_to_live: "1h" }] } } };
  const own = await start();
  await assertHoldsUpNobody(own, policy);
  assert.equal(await own.post("/waiting", { policy }), 0);
});

test("nor does one that is cancelled while it waits for a server", async () => {
  const host = await startHost('[policies.jobs]\nlimits = [{ algorithm = "concurrency", capacity = 1, time_to_live = "1h" }]');
  after(() => host.stop());
  await assertHoldsUpNobody(await start({ address: host.address }), "jobs", { url: host.url, token: "secret" });
});

test("at a server that does not answer one request at a time asks, and the others do not wait", async () => {
  let [isSilent, asked] = [true, 0];
  const decision = { policy: "p", allowed: true, limit: 9, remaining: 8, retry_after_us: 0, reset_after_us: 1, at_us: 1, limits: [] };
  const silent = createServer((_, response) => {
    asked++;
    if (!isSilent) response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(decision));
  }).listen(0, "127.0.0.1");
  await once(silent, "listening");
  after(() => (silent.closeAllConnections(), silent.close()));
  const address = `127.0.0.1:${silent.address().port}`;
  const { ask } = await start({ address });
  const check = async () => (await ask("p", [["check", "k"]], { options: { url: `http://${address}`, deadline: "1s" } }))[0];
  for (let time = 0; time < 40; time++) assert.deepEqual(await check(), { allowed: false, degraded: "server: no answer within 1000 ms" });
  assert.ok(asked < 20, `${asked} calls for 40 checks`);
  isSilent = false;
  await until(async () => (await check()).remaining === 8);
});

test("a request that can never pass, or whose limiter closes, does not wait", async () => {
  const policy = { policies: { ends: { limits: [{ algorithm: "fixed_window", limit: 1, period: "300d" }], deny: ["bad"] } } };
  const { ask, ...own } = await start();
  const codes = (answers) => answers.map(({ error }) => error?.code);
  const calls = [["waitFor", "bad"], ["waitFor", "k", { cost: 2 }], ["waitFor", "k", { cost: 0 }], ["waitFor", ""], ["waitFor", "k"]];
  const answers = await ask(policy, calls);
  assert.deepEqual(codes(answers), ["NEVER_GRANTED", "COST_EXCEEDS_CAPACITY", "INVALID_COST", "INVALID_KEY", undefined]);
  const waits = [ask(policy, [["waitFor", "k"]]), ask(policy, [["waitFor", "k"]])];
  await waiting(own, policy, 2);
  await own.post("/waiting", { policy, closes: true });
  assert.deepEqual(codes((await Promise.all(waits)).flat()), ["FREED", "FREED"]);
});

test("the middleware of Hono limits, and tells clients", async () => {
  const get = (isolate, key) => fetch(`${server[`isolate${isolate}`]}/limited/hono`, { headers: key && { "x-api-key": key } });
  const responses = [await get(0, "k"), await get(1, "k"), await get(0, "k"), await get(1, "other"), await get(0)];
  assert.deepEqual(responses.map(({ status }) => status), [200, 200, 429, 200, 400]);
  assert.match(responses[1].headers.get("ratelimit"), /r=0/);
  assert.ok(Number(responses[2].headers.get("retry-after")) > 0);
  assert.equal((await responses[2].json()).status, 429);
});

test("`on_error` decides if an object fails, lies or is late", async () => {
  const { ask, post } = await start();
  const open = { policies: { open: { ...POLICY, on_error: "open" } } };
  const closed = { policies: { closed: POLICY } };
  for (const lie of ["throw", { reply: "\u0001" }, { reply: 7 }, { reply: null }, { reply: { a: 1 } }, { reply: "x".repeat(1_000) }, "hang"]) {
    await post("/lie", { lie });
    for (const [policy, allowed] of [[open, true], [closed, false]]) {
      const [checked, blocked] = await ask(policy, [["check", "k"], ["block", "k", "1h"]], { options: { deadline: "50ms" } });
      assert.deepEqual(checked, { allowed, degraded: "durable object: no reply came, so the outcome is unknown" }, JSON.stringify(lie));
      assert.equal(blocked.error.code, "UNAVAILABLE");
    }
  }
  await post("/lie", {});
  assert.equal((await ask(open, [["check", "k"]]))[0].remaining, 4, "a lie takes nothing");
});

test("an outage is told once when it begins, with the error of the object, and once when it ends", async () => {
  const { isolate0: url, post, said } = await start();
  const get = async () => (await fetch(`${url}/limited/outage`, { headers: { "x-api-key": "k" } })).status;
  await post("/lie", { lie: "throw" });
  for (const end = Date.now() + 2_500; Date.now() < end;) assert.equal(await get(), 503); // the log has at most a line a second
  await post("/lie", {});
  const found = said(/[^]*requests are decided on again/);
  let isTold = false;
  found.finally(() => { isTold = true; });
  await until(async () => (await get(), isTold));
  const lines = (await found)[0].split("\n").filter((line) => /did not answer|tidegate:/.test(line));
  assert.deepEqual(lines.map((line) => line.replace(/^.*?(a durable|tidegate:)/, "$1")), [
    "a durable object did not answer: Error: an object that lies",
    "tidegate: requests are not decided on, so `on_error` holds: durable object: no reply came, so the outcome is unknown",
    "tidegate: requests are decided on again",
  ]);
});

test("while an object does not answer, no call waits for it, and other objects are asked", async () => {
  const { ask, post } = await start();
  const policy = { policies: { silent: { ...POLICY, on_error: "open" } } };
  const check = async (key) => (await ask(policy, [["check", key]], { options: { deadline: "1s" } }))[0];
  await post("/lie", { lie: "hang" });
  for (let time = 0; time < 40; time++) assert.equal((await check("k")).allowed, true);
  const calls = await post("/calls");
  assert.ok(calls < 20, `${calls} calls for 40 checks`); // each of which would have waited
  await check("other");
  assert.ok(await post("/calls") > 0, "another object is asked");
  await post("/lie", {});
  await until(async () => (await check("k")).remaining === 4);
});

test("after a trap WebAssembly begins anew, `on_error` decides on what was under way, and nothing stored is lost", async () => {
  const { ask, post } = await start();
  const policy = { policies: { trapped: { limits: [{ ...bucket, capacity: 100 }], on_error: "open" } } };
  assert.equal((await ask(policy, [["check", "k"]]))[0].remaining, 99);
  for (const name of ["objects_transmit", "objects_reply", "owner_ask", "objects_next"]) {
    await post("/trap", name);
    const all = await ask(policy, [["check", "k"], ["check", "other"], ["reset", "k2"]]);
    for (const { allowed, degraded, error } of all) assert.ok(error === undefined ? allowed : error.code === "UNAVAILABLE", JSON.stringify([name, allowed, degraded, error]));
    assert.ok(all.some(({ degraded }) => degraded !== undefined), name);
    const [{ remaining }] = await ask(policy, [["peek", "k"]]);
    assert.ok(remaining >= 95 && remaining < 100, `${name}: ${remaining}`);
  }
  await post("/trap", "nativeauthority_check");
  assert.equal((await ask(policy, [["check", "k"]]))[0].error.name, "RuntimeError");
  assert.equal((await ask(policy, [["check", "last"]]))[0].remaining, 99);
});

test("under `on_error = \"local\"` the share of the isolate decides", async () => {
  const { ask, post } = await start();
  const policy = { policies: { local: { limits: [{ ...bucket, capacity: 4 }], on_error: "local", nodes: 2 } } };
  assert.equal((await ask(policy, [["check", "before"]]))[0].allowed, true); // an isolate that no object has answered has no share
  await post("/lie", { lie: "throw" });
  const answers = [];
  for (let i = 0; i < 4; i++) answers.push(...await ask(policy, [["check", "k"]]));
  assert.deepEqual(answers.map(({ allowed }) => allowed), [true, true, false, false]);
  for (const { degraded, remaining } of answers) assert.deepEqual([typeof degraded, remaining], ["string", undefined]);
});

test("an object trusts no policy that is wrong, or whose text has another hash", async () => {
  const { ask, post } = await start();
  const asked = [];
  for (const capacity of [5, 6]) {
    assert.equal((await ask({ limits: [{ ...bucket, capacity }] }, [["check", "k"]]))[0].remaining, 4, "an edit keeps what was used");
    asked.push(await post("/asked"));
  }
  const [[questions, policy], [, other]] = asked;
  const fresh = await start();
  const answer = async (...given) => (await fresh.post("/raw", { object: "fresh", given })).answer;
  for (const given of [[questions], [questions, other], [questions, `${policy} `]]) assert.equal(await answer(...given), undefined, JSON.stringify(given));
  for (const given of [["x"], ["x", "y"], ["x", 7], ["", policy], ["", "\u0003abc\u0001x"]]) assert.equal(await answer(...given), "", "it finds no question");
  for (const given of [[questions, ""], [questions, 7], [], [7], ["\u0001x\u0000", "\u0000\u0000"]]) {
    const { error } = await answer(...given);
    assert.equal(typeof error.message, "string", JSON.stringify(given));
  }
  assert.notEqual((await answer(questions, policy)).length, 0, "it decides by the policy that was meant");
});

test("what is wrong with the arguments is told", async () => {
  const [bad, name, option, time] = await server.post("/ask", [
    { policy: { limits: [] }, calls: [] },
    { policy: { policies: { a: POLICY, b: POLICY } }, calls: [] },
    { policy: POLICY, options: { deadline: 0 }, calls: [] },
    { policy: POLICY, calls: [["check", "a", { now: 1_700_000_000_000_000 }], ["check", "a", { price: 1 }], ["check", "a", { limits: [] }], ["set", "a", 1]] },
  ]);
  assert.deepEqual([bad.error.code, name.error.code, option.error.code], ["INVALID_POLICY", "UNKNOWN_POLICY", "INVALID_OPTION"]);
  assert.match(time[0].error.message, /^`now`: expected no time/);
  assert.deepEqual(time.slice(1).map(({ error }) => error.message), [
    "`options`: expected `cost`, found `price`",
    "`limits`: expected no limits of a call, which need a `Limiter` in memory",
    "`set`: needs a `Limiter`, which has all states in memory",
  ]);
  const [none] = await server.post("/ask", [{ policy: POLICY, isWithoutObjects: true, calls: [] }]);
  assert.deepEqual([none.error.code, none.error.message], ["INVALID_OPTION", "`objects`: expected a binding of Durable Objects, such as `env.KEYS`, found undefined"]);
});
