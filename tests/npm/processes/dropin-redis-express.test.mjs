// Our store on a real Redis beside that of `rate-limit-redis`: the same random calls, and where they differ.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { RedisStore } from "rate-limit-redis";

import { ours, outcome, pick, randomFrom } from "../dropin.mjs";
import { assertAlike, both, movable, passEnds, startClients } from "../dropin-redis.mjs";

const { RedisStore: OwnStore } = await ours("express-rate-limit/redis");
const { io, node } = await startClients();
const KEYS = ["a", "b", "192.0.2.1", "ip:not an address", "2001:db8::/56", "}"];

let prefixes = 0;
/** Both stores, each with a prefix of its own. */
function pair() {
  const place = prefixes++;
  return [
    new RedisStore({ sendCommand: (...words) => io.call(...words), prefix: `their${place}:` }),
    new OwnStore({ client: place % 2 ? io : node, prefix: `own${place}:` }),
  ];
}

describe("the store, 4,000 calls", () => {
  for (const [place, windowMs] of [1_000, 60_000].entries()) {
    test(`windows of ${windowMs} ms`, async (t) => {
      const stores = pair();
      const [their] = stores;
      const move = movable(t, io, `${their.prefix}*`);
      for (const store of stores) await store.init({ windowMs });
      const [seed, random, counts] = [700 + place, randomFrom(700 + place), {}];
      for (let call = 0; call < 2_000; call++) {
        const ms = Math.floor(pick(random, [0, 0, 0, 1, windowMs / 7, windowMs / 2, windowMs]));
        if (ms > 0) await move(ms);
        const [name, key] = [pick(random, ["increment", "increment", "increment", "increment", "decrement", "get", "get", "resetKey"]), pick(random, KEYS)];
        const until = await passEnds(move, async () => Promise.all(stores.map(async (store) => (await store.get(key))?.resetTime.getTime() - Date.now())));
        // see "what differs"
        const hits = Number(await io.get(`${their.prefix}${key}`));
        if ((name === "decrement" || name === "get") && hits <= 0) continue;
        counts[name] = (counts[name] ?? 0) + 1;
        const results = await both((store) => outcome(store[name](key)), stores, until);
        if (results === undefined) { // a window of one may have ended between the calls
          for (const store of stores) await store.resetKey(key);
          continue;
        }
        assertAlike(results, ["resetTime"], `seed ${seed}, call ${call}: ${name}(${key})`);
      }
      t.diagnostic(`seed ${seed}: ${JSON.stringify(counts)}`);
    });
  }
});

test("two stores share the hits of a client, and that of the library stays apart", async () => {
  const prefix = "shared:";
  const stores = [new OwnStore({ client: io, prefix }), new OwnStore({ client: node, prefix }), new RedisStore({ sendCommand: (...words) => io.call(...words), prefix })];
  for (const store of stores) await store.init({ windowMs: 60_000 });
  const hits = await Promise.all(Array.from({ length: 90 }, async (_, place) => (await stores[place % 3].increment("a")).totalHits));
  const of = (places) => hits.filter((_, place) => places.includes(place % 3)).sort((one, other) => one - other);
  assert.deepEqual(of([0, 1]), Array.from({ length: 60 }, (_, place) => place + 1));
  assert.equal(of([2]).at(-1), 30);
  const other = new OwnStore({ client: io, prefix: "other:" });
  other.init({ windowMs: 60_000 });
  assert.equal((await other.increment("a")).totalHits, 1, "another prefix counts apart");
});

test("the store has the members that express-rate-limit needs", () => {
  const store = new OwnStore({ client: io });
  assert.deepEqual([store.prefix, store.localKeys], ["rl:", false]);
});

describe("what differs", () => {
  const stores = pair();
  test("`decrement` of an unknown client does nothing: theirs counts below zero for ever", async () => {
    for (const store of stores) {
      await store.init({ windowMs: 60_000 });
      await store.decrement("new");
    }
    assert.equal(await io.get(`${stores[0].prefix}new`), "-1");
    assert.equal(await stores[1].get("new"), undefined);
  });

  test("an unknown client has no hits: theirs has NaN", async () => {
    const [one, other] = [await stores[0].get("nobody"), await stores[1].get("nobody")];
    assert.ok(Number.isNaN(one.totalHits));
    assert.equal(other, undefined);
  });

  test("not all clients can be forgotten", () => assert.rejects(stores[1].resetAll(), {
    code: "INVALID_REQUEST", message: "`resetAll` is not here, because Redis would look at each of its keys: use `resetKey`, or another `prefix`",
  }));
});

describe("misuse", () => {
  for (const [name, client] of Object.entries({ "no client": undefined, "null": null, "an address": "redis://localhost", "another object": {} })) {
    test(name, () => assert.throws(() => new OwnStore({ client }), { code: "INVALID_OPTION", message: /^`client`: expected a client of `ioredis`/ }));
  }
  test("an option of theirs", () => assert.throws(() => new OwnStore({ sendCommand: "f" }), { message: '`sendCommand`: expected the client itself, in the option `client`, found "f"' }));
  test("another option of theirs", () => assert.throws(() => new OwnStore({ client: io, resetExpiryOnChange: true }), {
    code: "INVALID_OPTION",
    message: "`resetExpiryOnChange`: expected no such option, because a window lasts its span (`tidegate/express` with a `sliding_log` and `count_denied` refuses who goes on), found true",
  }));
  test("an unknown option", () => assert.throws(() => new OwnStore({ clients: io }), { message: '`options`: expected `client` or `prefix`, found "clients"' }));
  test("no init", () => assert.rejects(new OwnStore({ client: io }).increment("a"), { code: "NOT_INITIALIZED" }));
});
