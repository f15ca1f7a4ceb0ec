// The entry whose caller gives the module of WebAssembly.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";

import { installed } from "./installed.mjs";

const dist = join(installed, "node_modules/tidegate/dist");
const bytes = readFileSync(join(dist, "tidegate.wasm"));
const EMPTY = new Uint8Array([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0]);
const POLICY = { limits: [{ algorithm: "fixed_window", limit: 1, period: "1h" }] };

let instances = 0;
/** The entry as a new process has it. */
const fresh = () => import(`${pathToFileURL(join(dist, "slim.js"))}?${instances++}`);

test("before `init`, a limiter and a reporter say what to call", async () => {
  const { Limiter, LimiterError, Reporter, init } = await fresh();
  const expected = {
    name: "LimiterError", code: "NOT_INITIALIZED",
    message: "expected a call of `init` before the first `Limiter` or `Reporter`, found none; give it the file `tidegate/tidegate.wasm`",
  };
  assert.throws(() => new Limiter(POLICY), expected);
  assert.throws(() => new Limiter(5), expected);
  assert.throws(() => new Reporter({ limit: "10/s" }), expected);
  assert.throws(() => new Limiter(POLICY), LimiterError);
  init(bytes);
  assert.equal(new Limiter(POLICY).check("a").allowed, true);
});

for (const [what, given, found] of [
  ["nothing", undefined, "found undefined"],
  ["a path", "tidegate.wasm", "found a string"],
  ["a promise", Promise.resolve(bytes), "found an object"],
  ["a forged module", { [Symbol.toStringTag]: "WebAssembly.Module" }, "found an object"],
  ["an instance", new WebAssembly.Instance(new WebAssembly.Module(EMPTY)), "found an object"],
  ["other bytes", new Uint8Array([1, 2, 3]), /found bytes that cannot be compiled: /],
  ["no bytes", new ArrayBuffer(0), /found bytes that cannot be compiled: /],
  ["half of the bytes", bytes.subarray(0, bytes.length / 2), /found bytes that cannot be compiled: /],
  ["the bytes of another module", EMPTY, "found another module"],
  ["another module", new WebAssembly.Module(EMPTY), "found another module"],
  ["the module of another entry", readFileSync(join(dist, "toml/tidegate.wasm")), "found another module"],
]) {
  test(`${what} is refused, and the module is taken later`, async () => {
    const { ArgumentError, Limiter, init } = await fresh();
    assert.throws(() => init(given), (error) => {
      assert.ok(error instanceof ArgumentError);
      assert.equal(error.code, "INVALID_MODULE");
      const expected = "`module`: expected the file `tidegate/tidegate.wasm` as a WebAssembly.Module or as its bytes, ";
      assert.ok(error.message.startsWith(expected), error.message);
      assert.match(error.message.slice(expected.length), typeof found === "string" ? new RegExp(`^${found}$`) : found);
      return true;
    });
    assert.throws(() => new Limiter(POLICY), { code: "NOT_INITIALIZED" });
    init(bytes);
    assert.equal(new Limiter(POLICY).check("a").allowed, true);
  });
}

for (const [what, module] of [
  ["bytes", bytes],
  ["an ArrayBuffer", bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length)],
  ["a view", new DataView(bytes.buffer, bytes.byteOffset, bytes.length)],
  ["a module", new WebAssembly.Module(bytes)],
  ["a module of another realm", Object.setPrototypeOf(new WebAssembly.Module(bytes), {})],
]) {
  test(`${what} is taken once; a second call changes nothing`, async () => {
    const { Limiter, init } = await fresh();
    init(module);
    const limiter = new Limiter(POLICY);
    assert.equal(limiter.check("a").allowed, true);
    init(module);
    assert.equal(limiter.check("a").allowed, false);
    assert.throws(() => init(EMPTY), { code: "INVALID_MODULE" });
    assert.equal(limiter.check("a").allowed, false);
    assert.equal(limiter.check("b").allowed, true);
  });
}
