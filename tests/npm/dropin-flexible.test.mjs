// The classes of rate-limiter-flexible and ours under the same random calls, and where they differ.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { inspect } from "node:util";
import theirs from "rate-limiter-flexible";

import { compare, moveClock, ours, outcome, pick, randomFrom } from "./dropin.mjs";

const own = await ours("rate-limiter-flexible");
const KEYS = ["a", "b", 7, "ip:not an address", ""];
const CONFIGS = [
  { points: 5, duration: 2 },
  { points: 3, duration: 1.5, blockDuration: 4, keyPrefix: "login" },
  { points: 10, duration: 0, keyPrefix: "" },
  { points: 4, duration: 0.25, blockDuration: 0.1 },
  { points: 0, duration: 3 },
  { points: -2, duration: 3, keyPrefix: "ip" },
  { points: 2.5, duration: 10 },
];

/** A call of a limiter, with arguments that its types allow. */
function call(random) {
  const key = pick(random, KEYS);
  const points = pick(random, [undefined, 1, 1, 2, 3, 0, 7, 0.5, -1]);
  const options = pick(random, [undefined, undefined, {}, { customDuration: 5 }, { customDuration: 0 }]);
  const seconds = pick(random, [1, 3, 0.5, 0]);
  const name = pick(random, ["consume", "consume", "consume", "consume", "consume", "penalty", "reward", "get", "get", "set", "block", "delete"]);
  const args = {
    consume: [key, points, options], penalty: [key, points, options], reward: [key, points, options],
    get: [key], delete: [key], set: [key, pick(random, [0, 1, 5, 1000, 2.7]), pick(random, [1, 3, 0.5, 0, undefined])], block: [key, seconds],
  };
  return { name, args: args[name] };
}

describe("RateLimiterMemory, 21,000 calls", () => {
  CONFIGS.forEach((config, place) => {
    test(JSON.stringify(config), async (t) => {
      const move = moveClock(t);
      const seed = 100 + place;
      const step = (random) => move(pick(random, [0, 0, 1, 20, 100, 333, 1500, 2000]));
      const limiters = [new theirs.RateLimiterMemory(config), new own.RateLimiterMemory(config)];
      const counts = await compare({ seed, calls: 3_000, limiters, step, call });
      t.diagnostic(`seed ${seed}: ${JSON.stringify(counts)}`);
    });
  });
});

test("each option and each derived number is the same", () => {
  for (const config of [...CONFIGS, { points: 3, duration: 5, execEvenly: true, execEvenlyMinDelayMs: 7 }]) {
    const [one, other] = [new theirs.RateLimiterMemory(config), new own.RateLimiterMemory(config)];
    for (const name of [
      "points", "duration", "msDuration", "blockDuration", "msBlockDuration", "execEvenly", "execEvenlyMinDelayMs", "keyPrefix",
    ]) assert.equal(other[name], one[name], name);
    for (const key of ["a", 7, ""]) assert.equal(other.getKey(key), one.getKey(key));
    assert.equal(other.parseKey("rlflx:abc"), one.parseKey("rlflx:abc"));
  }
});

test("limits that change between calls, 3,000 calls", async (t) => {
  const move = moveClock(t);
  const limiters = [theirs, own].map(({ RateLimiterMemory }) => new RateLimiterMemory({ points: 3, duration: 2 }));
  const step = (random) => {
    move(pick(random, [0, 50, 400]));
    const [points, duration, blockDuration] = [random(6), pick(random, [0, 1, 3]), pick(random, [0, 0, 2])];
    for (const limiter of limiters) Object.assign(limiter, { points, duration, blockDuration });
  };
  await compare({ seed: 3, calls: 3_000, limiters, step, call });
});

test("RateLimiterRes has the fields and texts of theirs", () => {
  for (const args of [[], [1, 2, 3, true], [0, -1, 5]]) {
    const [one, other] = [new theirs.RateLimiterRes(...args), new own.RateLimiterRes(...args)];
    assert.deepEqual(other.toJSON(), one.toJSON());
    assert.equal(String(other), String(one));
    assert.equal(JSON.stringify(other), JSON.stringify(one));
    assert.equal(inspect(other), inspect(one));
  }
});

test("RateLimiterRes takes the values of theirs, when it is made and when it is set", () => {
  const fields = ["remainingPoints", "msBeforeNext", "consumedPoints", "isFirstInDuration"];
  for (const value of [undefined, null, 0, 1, -1, 2.5, NaN, "", "1", true, false, 5n, {}]) {
    const made = [theirs, own].map(({ RateLimiterRes }) => new RateLimiterRes(value, value, value, value));
    const set = [theirs, own].map(({ RateLimiterRes }) => {
      const result = new RateLimiterRes();
      for (const field of fields) result[field] = value;
      return result;
    });
    for (const [one, other] of [made, set]) {
      for (const field of fields) assert.deepEqual(other[field], one[field], `${field} of ${String(value)}`);
      assert.deepEqual(other.toJSON(), one.toJSON());
    }
  }
});

test("the methods of RLWrapperBlackAndWhite that decide by the lists are those of theirs", async () => {
  const [one, other] = [theirs, own].map(({ RateLimiterMemory, RLWrapperBlackAndWhite }) => new RLWrapperBlackAndWhite({
    limiter: new RateLimiterMemory({ points: 1, duration: 1 }), blackList: ["b"], isWhiteListed: (key) => key === "w",
  }));
  for (const name of ["isBlackListedSomewhere", "isWhiteListedSomewhere"]) {
    for (const key of ["a", "b", "w"]) assert.equal(other[name](key), one[name](key), `${name} ${key}`);
  }
  for (const name of ["getBlackRes", "getWhiteRes"]) assert.equal(String(other[name]()), String(one[name]()));
  for (const name of ["rejectBlack", "resolveBlack", "resolveWhite"]) {
    assert.deepEqual(await outcome(other[name]()), await outcome(one[name]()), name);
  }
  const { RateLimiterMemory, RLWrapperBlackAndWhite, RateLimiterRes } = own;
  class Kind extends RLWrapperBlackAndWhite {
    isBlackListedSomewhere(key) { return key === "never"; }
    getBlackRes() { return new RateLimiterRes(0, 5); }
  }
  const kind = new Kind({ limiter: new RateLimiterMemory({ points: 1, duration: 1 }) });
  await assert.rejects(kind.consume("never"), { msBeforeNext: 5 });
});

test("execEvenly delays each request as theirs does, 2,000 calls", async (t) => {
  const move = moveClock(t);
  const random = randomFrom(5);
  for (const config of [{ points: 5, duration: 2 }, { points: 3, duration: 1, execEvenlyMinDelayMs: 400 }, { points: 4, duration: 0 }]) {
    const settled = [[], []];
    const limiters = [theirs, own].map(({ RateLimiterMemory }) => new RateLimiterMemory({ ...config, execEvenly: true }));
    for (let place = 0; place < 667; place++) {
      const key = pick(random, ["a", "b"]);
      limiters.forEach((limiter, which) => outcome(limiter.consume(key)).then((end) => settled[which].push([place, Date.now(), end])));
      const moves = random(4);
      for (let count = 0; count < moves; count++) await moved(move, random(300));
    }
    await moved(move, 10_000);
    const inOrder = settled.map((ends) => ends.sort(([one], [other]) => one - other));
    assert.equal(inOrder[0].length, 667);
    assert.deepEqual(inOrder[1], inOrder[0]);
  }
});

test("a wait of execEvenly that is longer than a timer knows takes several timers", async (t) => {
  const move = moveClock(t, ["Date"]);
  const limiter = new own.RateLimiterMemory({ points: 2, duration: 100 * 86_400, execEvenly: true });
  await limiter.consume("a");
  move(1_000); // at the same time the wait is half as long
  const waits = [];
  t.mock.method(globalThis, "setTimeout", (act, ms) => { waits.push(ms); queueMicrotask(act); });
  await limiter.consume("a");
  assert.deepEqual(waits.map((ms) => ms <= 2 ** 31 - 1), [true, true, true, true, true]);
  assert.equal(Math.round(waits.reduce((sum, ms) => sum + ms) / 86_400_000), 100);
});

/** Moves the clock by steps of a millisecond, and lets promises go on between them. */
async function moved(move, ms) {
  await settle();
  for (let past = 0; past < ms; past++) {
    move(1);
    await settle();
  }
}

const settle = () => new Promise(setImmediate);

describe("limiters that are made of others", () => {
  const both = (make) => [theirs, own].map(make);
  const randomly = async (t, calls, limiters, next = call) => {
    const move = moveClock(t);
    const step = (random) => move(pick(random, [0, 1, 100, 700]));
    await compare({ seed: 11, calls, limiters, step, call: next });
  };
  const consumes = (random) => ({ name: "consume", args: [pick(random, KEYS), pick(random, [undefined, 1, 2])] });

  test("RateLimiterUnion, 10,000 calls", (t) => randomly(t, 10_000, both(({ RateLimiterMemory, RateLimiterUnion }) => new RateLimiterUnion(
    new RateLimiterMemory({ points: 2, duration: 1, keyPrefix: "second" }),
    new RateLimiterMemory({ points: 5, duration: 6, keyPrefix: "minute" }),
  )), consumes));

  const listed = ({ RateLimiterMemory, RLWrapperBlackAndWhite }, runActionAnyway) => new RLWrapperBlackAndWhite({
    limiter: new RateLimiterMemory({ points: 2, duration: 1 }),
    blackList: ["b"], whiteList: [7], isBlackListed: (key) => key === "", isWhiteListed: (key) => key === "w", runActionAnyway,
  });
  const withLists = (random) => {
    const { name, args } = call(random);
    if (random(3) === 0) args[0] = "w";
    return { name, args };
  };
  test("RLWrapperBlackAndWhite, 5,000 calls", (t) => randomly(t, 5_000, both((library) => listed(library)), withLists));
  test("RLWrapperBlackAndWhite that runs the action anyway, 5,000 calls", (t) => randomly(t, 5_000, both((library) => listed(library, true)), withLists));

  test("BurstyRateLimiter, 10,000 calls", (t) => randomly(t, 10_000, both(({ RateLimiterMemory, BurstyRateLimiter }) => new BurstyRateLimiter(
    new RateLimiterMemory({ points: 2, duration: 1 }),
    new RateLimiterMemory({ points: 5, duration: 6, keyPrefix: "burst" }),
  )), (random) => (random(3) === 0 ? { name: "get", args: [pick(random, KEYS)] } : consumes(random))));
});

test("RateLimiterQueue serves in the order and at the times of theirs, 10,000 requests", async (t) => {
  const move = moveClock(t);
  const random = randomFrom(17);
  const settled = [[], []];
  const queues = [theirs, own].map(({ RateLimiterMemory, RateLimiterQueue }) => {
    return new RateLimiterQueue(new RateLimiterMemory({ points: 6, duration: 0.05 }), { maxQueueSize: 20 });
  });
  for (let place = 0; place < 10_000; place++) {
    const args = [1 + random(7), pick(random, [undefined, "a", 7]), random(8) === 0 ? Math.floor(Date.now() / 1000) + random(2) : undefined];
    queues.forEach((queue, which) => outcome(queue.removeTokens(...args)).then((end) => settled[which].push([place, Date.now(), end])));
    if (random(4) === 0) {
      const [one, other] = await Promise.all(queues.map((queue) => outcome(queue.getTokensRemaining(args[1]))));
      assert.deepEqual(other, one);
    }
    if (random(3) === 0) await moved(move, random(60));
  }
  await moved(move, 5_000);
  assert.equal(settled[0].length, 10_000);
  const sorted = settled.map((ends) => ends.sort(([one], [other]) => one - other));
  assert.deepEqual(sorted[1], sorted[0]);
});

test("a queue on a limiter that answers no points is an error", async () => {
  const union = new own.RateLimiterUnion(new own.RateLimiterMemory({ points: 2, duration: 1 }));
  await assert.rejects(new own.RateLimiterQueue(union).removeTokens(1), { code: "INVALID_OPTION", message: /remainingPoints/ });
  const queue = new own.RateLimiterQueue(new own.RateLimiterMemory({ points: 2, duration: 1 }), { maxQueueSize: Infinity });
  assert.equal(await queue.removeTokens(1), 1);
});

test("get and delete know the keys that the insurance counts", async () => {
  const insuranceLimiter = new own.RateLimiterMemory({ points: 1, duration: 60 });
  const limiter = new own.RateLimiterMemory({ points: 5, duration: 60, insuranceLimiter, maxBytes: 20_000 });
  let place = 0;
  while (await insuranceLimiter.get(`key ${place}`) === null) await limiter.consume(`key ${++place}`);
  assert.equal((await limiter.get(`key ${place}`)).consumedPoints, 1);
  assert.equal(await limiter.delete(`key ${place}`), true);
  assert.equal(await limiter.get(`key ${place}`), null);
  await limiter.block(`key ${place}`, 60);
  assert.ok((await limiter.get(`key ${place}`)).msBeforeNext > 0);
  assert.equal(new own.RateLimiterMemory({ points: 1, duration: 1, insuranceLimiter: null }).insuranceLimiter, undefined);
});

test("the insurance answers when there is no room for a key", async () => {
  const insuranceLimiter = new own.RateLimiterMemory({ points: 1, duration: 60 });
  const limiter = new own.RateLimiterMemory({ points: 5, duration: 60, blockDuration: 9, insuranceLimiter, maxBytes: 20_000 });
  assert.equal(insuranceLimiter.blockDuration, 9); // as theirs
  let place = 0;
  for (; (await limiter.consume(`key ${place}`)).remainingPoints === 4; place++) assert.ok(place < 10_000);
  assert.equal((await limiter.get("key 0")).consumedPoints, 1);
  assert.equal((await insuranceLimiter.get(`key ${place}`)).consumedPoints, 1);
  await assert.rejects(limiter.consume(`key ${place}`), own.RateLimiterRes);
  const alone = new own.RateLimiterMemory({ points: 5, duration: 60, maxBytes: 20_000 });
  const fill = async () => { for (let count = 0; ; count++) await alone.consume(`key ${count}`); };
  await assert.rejects(fill, { code: "TABLE_FULL" });
  assert.equal((await alone.consume("key 0")).consumedPoints, 2);
});

test("a full limiter forgets the keys whose windows have ended", async (t) => {
  const move = moveClock(t);
  const limiter = new own.RateLimiterMemory({ points: 5, duration: 60, maxBytes: 20_000 });
  let count = 0;
  await assert.rejects(async () => { for (; ; count++) await limiter.consume(`key ${count}`); }, { code: "TABLE_FULL" });
  move(59_999);
  await outcome(limiter.consume("new"));
  for (let place = 0; place < count; place++) assert.equal((await limiter.consume(`key ${place}`)).consumedPoints, 2);
  move(1_001);
  for (let place = 0; place < count; place++) await limiter.consume(`new ${place}`);
});

describe("what differs", () => {
  test("limiters of theirs work in ours, but not the other way round", async () => {
    const their = new theirs.RateLimiterMemory({ points: 1, duration: 60 });
    const union = new own.RateLimiterUnion(their, new own.RateLimiterMemory({ points: 5, duration: 60, keyPrefix: "own" }));
    const { rlflx, own: found } = await union.consume("a");
    assert.deepEqual([rlflx.remainingPoints, found.remainingPoints], [0, 4]);
    const bursty = new own.BurstyRateLimiter(their, new own.RateLimiterMemory({ points: 1, duration: 60 }));
    assert.equal((await bursty.consume("a")).consumedPoints, 2);
    assert.throws(() => new theirs.RateLimiterUnion(new own.RateLimiterMemory({ points: 1, duration: 60 })));
  });

  test("a window of more than 24.8 days lasts: Node runs theirs' timer at once", async (t) => {
    const move = moveClock(t, ["Date"]);
    const limiter = new own.RateLimiterMemory({ points: 5, duration: 30 * 86_400 });
    await limiter.consume("a");
    move(29 * 86_400_000);
    assert.equal((await limiter.consume("a")).consumedPoints, 2);
    move(86_400_000);
    assert.equal((await limiter.consume("a")).consumedPoints, 1);
  });

  test("points that are no finite number are an error: theirs counts NaN, which is never too much", async () => {
    for (const points of [NaN, Infinity, "2", null]) {
      await assert.rejects(new own.RateLimiterMemory({ points: 1, duration: 1 }).consume("a", points), { code: "INVALID_OPTION" });
    }
    assert.equal((await new theirs.RateLimiterMemory({ points: 1, duration: 1 }).consume("a", NaN)).remainingPoints, NaN);
  });

  test("a block needs a number of seconds: theirs blocks for ever without", async () => {
    await assert.rejects(new own.RateLimiterMemory({ points: 1, duration: 1 }).block("a"), { code: "INVALID_OPTION", message: "`secDuration`: expected a finite number, found undefined" });
  });

  test("an object, symbol or function in the place of a key is an error", async () => {
    const limiter = new own.RateLimiterMemory({ points: 1, duration: 1, keyPrefix: "" });
    for (const key of [{}, Symbol("a"), () => 1]) await assert.rejects(limiter.consume(key), { code: "INVALID_KEY" });
    // theirs, too, tells a number from a text only without a prefix
    await limiter.consume(1);
    await limiter.consume("1");
  });

  test("a queue whose points never come back asks once a second: theirs asks every millisecond", async (t) => {
    const move = moveClock(t);
    const limiter = new own.RateLimiterMemory({ points: 1, duration: 0 });
    const queue = new own.RateLimiterQueue(limiter);
    await queue.removeTokens(1);
    const waits = queue.removeTokens(1);
    await settle();
    await limiter.delete("limiter");
    await moved(move, 1_000);
    assert.equal(await waits, 0);
  });
});

describe("misuse", () => {
  const { RateLimiterMemory, RateLimiterUnion, RLWrapperBlackAndWhite, RateLimiterQueue, BurstyRateLimiter } = own;
  const valid = { points: 1, duration: 1 };
  for (const [name, make, message] of [
    ["no options", () => new RateLimiterMemory(), "`points`: expected a finite number, found undefined"],
    ["points as text", () => new RateLimiterMemory({ points: "5", duration: 1 }), '`points`: expected a finite number, found "5"'],
    ["no duration", () => new RateLimiterMemory({ points: 5 }), "`duration`: expected a finite number of at least 0, found undefined"],
    ["a negative duration", () => new RateLimiterMemory({ points: 5, duration: -1 }), "`duration`: expected a finite number of at least 0, found -1"],
    ["a block that is no number", () => new RateLimiterMemory({ ...valid, blockDuration: "1" }), '`blockDuration`: expected a finite number, found "1"'],
    ["a prefix that is no text", () => new RateLimiterMemory({ ...valid, keyPrefix: 5 }), "`keyPrefix`: expected a string, found 5"],
    ["an insurance that is no limiter", () => new RateLimiterMemory({ ...valid, insuranceLimiter: {} }), "`insuranceLimiter`: expected a rate limiter, found [object Object]"],
    ["an empty union", () => new RateLimiterUnion(), "`limiters`: expected at least one rate limiter, found undefined"],
    ["a union of something else", () => new RateLimiterUnion(new RateLimiterMemory(valid), 5), "`limiters[1]`: expected a rate limiter, found 5"],
    ["lists without a limiter", () => new RLWrapperBlackAndWhite(), "`limiter`: expected a rate limiter, found undefined"],
    ["a list that is none", () => new RLWrapperBlackAndWhite({ limiter: new RateLimiterMemory(valid), blackList: "a" }), '`blackList`: expected an array of keys, found "a"'],
    ["a predicate that is none", () => new RLWrapperBlackAndWhite({ limiter: new RateLimiterMemory(valid), isWhiteListed: true }), "`isWhiteListed`: expected a function, found true"],
    ["a queue without a limiter", () => new RateLimiterQueue(), "`limiterFlexible`: expected a rate limiter, found undefined"],
    ["bursts without a limiter", () => new BurstyRateLimiter(new RateLimiterMemory(valid)), "`burstLimiter`: expected a rate limiter, found undefined"],
  ]) test(name, () => assert.throws(make, { code: "INVALID_OPTION", message }));

  test("more points than can be counted change nothing", async () => {
    const limiter = new RateLimiterMemory({ points: 5, duration: 60 });
    await limiter.consume("a");
    await assert.rejects(limiter.penalty("a", 2 ** 52), { code: "INVALID_COST" });
    await assert.rejects(limiter.set("a", 2 ** 52, 1), { code: "INVALID_COST" });
    await limiter.reward("a", 2 ** 50);
    await assert.rejects(limiter.reward("a", 2 ** 50), { code: "INVALID_COST" });
    assert.equal((await limiter.get("a")).consumedPoints, 1 - 2 ** 50);
  });
});
