// Every public member and option of the libraries is in our classes, or its use says what to use instead.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import upstash from "@upstash/ratelimit";
import flexible from "rate-limiter-flexible";
import rolling from "rolling-rate-limiter";

import { ours } from "./dropin.mjs";

const own = {
  "express-rate-limit": await ours("express-rate-limit"), "rate-limiter-flexible": await ours("rate-limiter-flexible"),
  "rolling-rate-limiter": await ours("rolling-rate-limiter"), upstash: await ours("upstash"),
};
const redis = {
  "rate-limiter-flexible": await ours("rate-limiter-flexible/redis"), "rolling-rate-limiter": await ours("rolling-rate-limiter/redis"),
  upstash: await ours("upstash/redis"),
};
const client = { callBuffer: async () => 0 };
const theirs = { "express-rate-limit": await import("express-rate-limit"), "rate-limiter-flexible": flexible, "rolling-rate-limiter": rolling, upstash };

/** What their types call private. */
const PRIVATE = ["constructor", "resetClient", "getClient", "clearExpired", "calculateInfo"];

/** Objects of the classes whose fields are their own. */
const examples = {
  RateLimiterRes: ({ RateLimiterRes }) => new RateLimiterRes(),
  RLWrapperTimeouts: ({ RLWrapperTimeouts, RateLimiterMemory }) =>
    new RLWrapperTimeouts({ limiter: new RateLimiterMemory({ points: 1, duration: 1 }) }),
  RateLimiterRedis: ({ RateLimiterRedis }) => new RateLimiterRedis({ storeClient: client, points: 1, duration: 1 }),
  RLWrapperBlackAndWhite: ({ RLWrapperBlackAndWhite, RateLimiterMemory }) =>
    new RLWrapperBlackAndWhite({ limiter: new RateLimiterMemory({ points: 1, duration: 1 }) }),
};

/** The names of a prototype and of those that it inherits from. */
function membersOf(prototype) {
  const names = new Set();
  for (let each = prototype; each !== Object.prototype; each = Object.getPrototypeOf(each)) {
    for (const name of Object.getOwnPropertyNames(each)) if (!name.startsWith("_") && !PRIVATE.includes(name)) names.add(name);
  }
  return [...names];
}

describe("each class has the members of theirs", () => {
  for (const [library, classes] of [...Object.entries(own), ...Object.entries(redis)]) {
    for (const [name, type] of Object.entries(classes)) {
      const their = theirs[library][name];
      if (name === "default" || name === "MultiRegionRatelimit" || their === undefined) continue; // a base class that theirs does not export
      test(`${library}: ${name}`, () => {
        const example = examples[name]?.(classes) ?? type.prototype;
        assert.deepEqual(membersOf(their.prototype).filter((member) => !(member in example)), []);
        const statics = Object.getOwnPropertyNames(their).filter((member) => !["length", "name", "prototype"].includes(member));
        assert.deepEqual(statics.filter((member) => !(member in type)), []);
      });
    }
  }

  test("upstash: the functions of an object", () => {
    const make = (type) => new type({ redis: {}, limiter: type.fixedWindow(1, "1 s") });
    const [their, our] = [make(upstash.Ratelimit), make(own.upstash.Ratelimit)];
    // the last ones are protected in their types
    const internal = ["getRatelimitResponse", "applyTimeout", "submitAnalytics", "getKey", "getDefinedMembers"];
    const functions = Object.keys(their).filter((name) => typeof their[name] === "function" && !internal.includes(name));
    assert.deepEqual(functions.filter((name) => typeof our[name] !== "function" && name !== "limiter"), []);
  });
});

describe("a member that is not here says what to use", () => {
  const memory = new own["rate-limiter-flexible"].RateLimiterMemory({ points: 1, duration: 1 });
  const { Ratelimit } = own.upstash;
  const actions = new own["rolling-rate-limiter"].InMemoryRateLimiter({ interval: 1_000, maxInInterval: 1 });
  for (const [name, call, message] of [
    ["dump", () => memory.dump(), "`dump` is not here, because the bytes of our dumps are not theirs: use `dump` and `restore` of a `Limiter`"],
    ["restore", () => memory.restore({ version: 1, storage: [] }), "`restore` is not here, because the bytes of our dumps are not theirs: use `dump` and `restore` of a `Limiter`"],
    ["cachedFixedWindow", () => Ratelimit.cachedFixedWindow(1, "1 s"), "`cachedFixedWindow` is not here, because memory needs no cache: use `fixedWindow`"],
  ]) test(name, () => assert.throws(call, { name: "ArgumentError", code: "INVALID_REQUEST", message }));
  for (const [name, call, message] of [
    ["cachedFixedWindow in Redis", async () => redis.upstash.Ratelimit.cachedFixedWindow(1, "1 s"), "`cachedFixedWindow` is not here, because two processes would both count on their caches: use `fixedWindow`"],
    ["getTimestamps", () => actions.getTimestamps("a", false), "`getTimestamps` is not here, because no list holds the actions: use `wouldLimitWithInfo`"],
  ]) {
    test(name, async () => {
      const promise = call();
      await assert.rejects(promise, { name: "ArgumentError", code: "INVALID_REQUEST", message });
    });
  }

  test("a class that lacks a property of a limiter", () => {
    class Incomplete extends own["rate-limiter-flexible"].RateLimiterCompatibleAbstract {}
    class Complete extends own["rate-limiter-flexible"].RateLimiterCompatibleAbstract { keyPrefix = "a"; }
    for (const name of ["keyPrefix", "blockDuration", "execEvenly"]) {
      const message = `expected a class with the property \`${name}\`, found none`;
      assert.throws(() => new Incomplete()[name], { message });
      assert.throws(() => { new Incomplete()[name] = 5; }, { message });
    }
    assert.equal(new Complete().keyPrefix, "a");
  });
});

/** The options that a constructor reads. */
function optionsOf(make, options) {
  const read = new Set();
  make(new Proxy(options, { get(target, name) { read.add(name); return target[name]; } }));
  return [...read];
}

test("each option that theirs read is read, or ignored as the types say", () => {
  const limiter = (type) => new type.RateLimiterMemory({ points: 1, duration: 1 });
  for (const [library, name, options, ignored] of [
    ["rate-limiter-flexible", "RateLimiterMemory", () => ({ points: 1, duration: 1 }), []],
    ["rate-limiter-flexible", "RLWrapperBlackAndWhite", (type) => ({ limiter: limiter(type) }), []],
    ["rate-limiter-flexible", "RLWrapperTimeouts", (type) => ({ limiter: limiter(type), timeoutMs: 1 }), []],
    ["rate-limiter-flexible", "RateLimiterRedis", () => ({ storeClient: client, points: 1, duration: 1 }), ["rejectIfRedisNotReady", "useRedis3AndLowerPackage", "useRedisPackage"]],
    ["rolling-rate-limiter", "RedisRateLimiter", () => ({ client: { ...client, zremrangebyscore: 1 }, namespace: "n", interval: 1, maxInInterval: 1 }), []],
    ["rolling-rate-limiter", "InMemoryRateLimiter", () => ({ interval: 1, maxInInterval: 1 }), []],
    ["upstash", "Ratelimit", (type) => ({ redis: {}, limiter: type.Ratelimit.fixedWindow(1, "1 s") }),
      ["redis", "timeout", "analytics", "denyListThreshold", "enableTelemetry"]],
  ]) {
    const read = (types) => optionsOf((given) => new types[name](given), options(types));
    const found = read((name.includes("Redis") ? redis : own)[library]);
    assert.deepEqual(read(theirs[library]).filter((option) => !found.includes(option)).sort(), ignored.sort(), name);
  }
});
