// The vectors that every backend replays: each field of each step's answer is compared.
import assert from "node:assert/strict";
import { test } from "node:test";

import { load } from "./installed.mjs";
import { replay } from "./replay.js";
import { readVectors } from "./vectors.mjs";

const { Limiter } = await load();
const vectors = readVectors();

test("there are vectors", () => assert.ok(Object.keys(vectors).length > 0));

for (const [name, vector] of Object.entries(vectors)) {
  test(`${name}: ${vector.about}`, () => assert.ok(replay(Limiter, name, vector) > 0));
}
