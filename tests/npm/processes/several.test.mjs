// Several limiters of one middleware: all or nothing, in front of real servers of each framework.
import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import { test } from "node:test";

import { frameworks, serve } from "../frameworks.mjs";
import { load } from "../installed.mjs";

const { Limiter } = await load();
const { toml } = await load("tidegate/toml");
const { MemoryStore, rateLimit } = await load("tidegate/fetch");
const servers = frameworks();

const FILE = `
[policies.by_address]
limits = [{ name = "burst", algorithm = "fixed_window", limit = 3, period = "1h", start = "first" }]
[policies.by_key]
key = ["header:x-api-key"]
limits = [{ name = "burst", algorithm = "fixed_window", limit = 1, period = "1h", start = "first" }]
[policies.jobs]
limits = [{ algorithm = "concurrency", capacity = 1, time_to_live = "30s" }]
[policies.tokens]
limits = [{ algorithm = "fixed_window", limit = 1_000, period = "1d", start = "first" }]
reservations = {}
[policies.plans]
limits = [
  { name = "plan", algorithm = "fixed_window", limit = 9, period = "1d", payer = true },
  { name = "credits", algorithm = "fixed_window", limit = 9, period = "1d", payer = true },
]
`;
const of = (policy) => new Limiter(toml(FILE), { policy });
const both = () => [of("by_address"), of("by_key")];

async function ask(port, headers = {}) {
  const request = http.request({ port, host: "127.0.0.1", headers, agent: false }).end();
  const [response] = await once(request, "response");
  const body = (await response.setEncoding("utf8").toArray()).join("");
  return { status: response.statusCode, headers: response.headers, body };
}

const alice = { "x-api-key": "alice" };
const address = "ip:127.0.0.1";

for (const framework of Object.keys(servers)) {
  test(`${framework}: the second limiter refuses, and the first gets back what it gave`, async (t) => {
    const [byAddress, byKey] = both();
    const port = await serve(t, await servers[framework]([byAddress, byKey], {}, async () => "hello"));
    const granted = await ask(port, alice);
    assert.equal(granted.status, 200);
    assert.equal(granted.headers["ratelimit-policy"], '"by_address/burst";q=3;w=3600, "by_key/burst";q=1;w=3600');
    assert.match(granted.headers.ratelimit, /^"by_address\/burst";r=2;t=\d+, "by_key\/burst";r=0;t=\d+$/);
    const before = byAddress.peek(address).remaining;
    const refused = await ask(port, alice);
    assert.equal(refused.status, 429);
    assert.equal(refused.headers["ratelimit-policy"], '"by_key/burst";q=1;w=3600');
    const { policy, "violated-policies": violated } = JSON.parse(refused.body);
    assert.deepEqual([policy, violated], ["by_key", ["by_key/burst"]]);
    assert.equal(byAddress.peek(address).remaining, before);

    assert.equal((await ask(port)).status, 400, "a request without the second key");
    assert.equal(byAddress.peek(address).remaining, before, "it is charged nothing");
    assert.equal((await ask(port, { "x-api-key": "bob" })).status, 200);
    assert.equal((await ask(port, { "x-api-key": "eve" })).status, 200);
    const mallory = await ask(port, { "x-api-key": "mallory" });
    assert.equal(JSON.parse(mallory.body).policy, "by_address");
    assert.equal(byKey.size, 3, "the second was not asked");
  });
}

const request = (headers = alice) => new Request("http://localhost/", { headers });
const ip = () => "127.0.0.1";
const hello = async () => new Response("hello");

test("leases and reservations of every limiter are held, given back and committed", async () => {
  const [jobs, tokens, byKey] = [of("jobs"), of("tokens"), of("by_key")];
  const answer = async () => Response.json({ used: 7 });
  const limited = rateLimit([jobs, tokens, byKey], answer, { ip, cost: 100, actual: { field: "used" } });
  const held = await limited(request());
  assert.deepEqual([jobs.peek(address, { cost: 1 }).allowed, tokens.peek(address).remaining], [false, 900]);
  await held.text();
  assert.deepEqual([jobs.peek(address, { cost: 1 }).allowed, tokens.peek(address).remaining], [true, 993]);
  const refused = await limited(request());
  assert.equal(refused.status, 429);
  assert.equal((await refused.json()).policy, "by_key");
  assert.deepEqual([jobs.peek(address, { cost: 1 }).allowed, tokens.peek(address).remaining], [true, 993]);
  assert.equal(byKey.peek("header:x-api-key:alice").remaining, 0, "it took the cost of its policy, and no estimate");
});

test("an older form is that of the limiter that leaves least", async () => {
  const [byAddress, byKey] = both();
  const limited = rateLimit([byAddress, byKey], hello, { ip, headers: "x-ratelimit" });
  const { headers } = await limited(request());
  assert.deepEqual([headers.get("x-ratelimit-limit"), headers.get("x-ratelimit-remaining")], ["1", "0"]);
});

test("limiters without names have the plain names of their limits", async () => {
  const limit = (name) => ({ name, algorithm: "fixed_window", limit: 2, period: "1h", start: "first" });
  const limiters = ["a", "b"].map((name) => new Limiter({ limits: [limit(name), limit(`${name}2`)] }));
  const { headers } = await rateLimit(limiters, hello, { ip })(request());
  assert.equal(headers.get("ratelimit-policy"), ["a", "a2", "b", "b2"].map((name) => `"${name}";q=2;w=3600`).join(", "));
});

test("each limiter may have a key and a store of its own", async () => {
  const [byAddress, byKey] = both();
  const given = [];
  class Watched extends MemoryStore {
    async giveBack(key, admission) {
      given.push([key, admission.grant.units]);
      await super.giveBack(key, admission);
    }
  }
  const options = { ip, key: [undefined, () => "user:42"], store: [new Watched(byAddress), undefined], cost: 1 };
  const limited = rateLimit([byAddress, byKey], hello, options);
  assert.equal((await limited(request())).status, 200);
  assert.equal((await limited(request({}))).status, 429);
  assert.deepEqual(given, [[address, 1]]);
  assert.equal(byAddress.peek(address).remaining, 2);
});

test("an option of a prototype is none", async (t) => {
  const inherited = { key: () => "attacker", store: new MemoryStore(of("by_address")), cost: 2, actual: () => 1 };
  t.after(() => Object.keys(inherited).forEach((name) => delete Object.prototype[name]));
  Object.assign(Object.prototype, inherited);
  const limited = rateLimit([of("by_key"), of("by_address")], hello, { ip });
  for (const user of ["alice", "bob"]) {
    const { status, headers } = await limited(request({ "x-api-key": user }));
    assert.equal(status, 200, user);
    assert.match(headers.get("ratelimit"), /^"by_key\/burst";r=0;/);
  }
});

test("a store that fails gives the earlier ones back, and a failed undo changes no answer", async () => {
  const [byAddress, byKey] = both();
  const fails = async () => { throw new Error("away"); };
  const store = { check: fails, renew: fails, release: fails };
  await assert.rejects(rateLimit([byAddress, byKey], hello, { ip, store: [undefined, store] })(request()), /away/);
  assert.equal(byAddress.peek(address).remaining, 3);

  const errors = [];
  class Deaf extends MemoryStore {
    giveBack = fails;
  }
  const options = { ip, store: [new Deaf(byAddress), undefined], onError: (error) => errors.push(error.message) };
  const limited = rateLimit([byAddress, byKey], hello, options);
  assert.equal((await limited(request())).status, 200);
  assert.equal((await limited(request())).status, 429);
  assert.deepEqual(errors, ["away"]);
});

test("what makes no list of limiters is refused", () => {
  const all = both();
  const none = async () => {};
  for (const [limiters, options, message] of [
    [[], {}, /expected a Limiter or a list of 2 to 8, found a list of 0/],
    [[all[0]], {}, /found a list of 1/],
    [Array(9).fill(all[0]), {}, /found a list of 9/],
    [[all[0], all[0]], {}, /expected limiters that differ, or a `key` for each, found one twice/],
    [[all[0], {}], {}, /expected a Limiter, a RedisLimiter, a DurableLimiter or a RemoteLimiter/],
    [all, { key: [none] }, /`options\.key`: expected a list with an entry for each of 2 limiters, found a list of 1/],
    [all, { store: new MemoryStore(all[0]) }, /`options\.store`: expected a list/],
    [all, { store: [{ check: none, renew: none, release: none }, undefined] }, /`options\.store\.giveBack`/],
    [all, { actual: 1 }, /expected a limiter whose policy has `reservations`/],
    [all, null, /`options`: expected an object/],
    [all, { headers: "draft-5" }, /draft-5/],
    [[of("plans"), all[1]], {}, /expected "plans" last/],
  ]) {
    assert.throws(() => rateLimit(limiters, hello, options), message);
  }
  rateLimit([all[1], of("plans")], hello, {});
  rateLimit([all[0], all[0]], hello, { key: [() => "a", () => "b"] });
});
