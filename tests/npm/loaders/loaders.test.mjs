// The packed package in every loader, with the program `app.js`. What is not installed is skipped by name.
import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { once } from "node:events";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, extname, join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { startHost } from "../host.mjs";
import { installed } from "../installed.mjs";
import { start } from "../processes.mjs";
import { readVectors } from "../vectors.mjs";
import { FOR_BROWSERS, FOR_NODE, JEST, NEXT, NEXT_MIDDLEWARE, VITEST, WORKER, page, remotePage } from "./projects.mjs";

const here = fileURLToPath(new URL(".", import.meta.url));
const tools = join(here, "node_modules/.bin");
const workspace = fileURLToPath(new URL("../../../node_modules", import.meta.url));
const PATH = [dirname(process.execPath), tools, join(workspace, ".bin"), process.env.PATH].join(":");
const work = mkdtempSync(join(here, "built-"));
const cleanups = [() => rmSync(work, { recursive: true, force: true })];
after(async () => { for (const clean of cleanups.reverse()) await clean(); });

cpSync(join(installed, "node_modules"), join(work, "node_modules"), { recursive: true });
const vectors = readVectors();
const steps = Object.values(vectors).reduce((sum, vector) => sum + vector.steps.length, 0);
const RESULT = `${Object.keys(vectors).length} vectors, ${steps} + ${steps} steps`;
writeFileSync(join(work, "vectors.json"), JSON.stringify(vectors));
for (const [file, format] of [["app.mjs", "esm"], ["app.cjs", "cjs"]]) {
  const options = ["--bundle", "--platform=neutral", "--target=es2022", "--external:tidegate", "--loader:.wasm=binary", "--log-level=warning"];
  const files = { vectors: "vectors.json", module: "node_modules/tidegate/dist/tidegate.wasm" };
  const aliases = Object.entries(files).map(([name, path]) => `--alias:#${name}=${join(work, path)}`);
  run(work, "esbuild", join(here, "app.js"), ...options, ...aliases, `--format=${format}`, `--outfile=${file}`);
}
for (const file of ["report.mjs", "middleware.cjs"]) cpSync(join(here, file), join(work, file));
writeFileSync(join(work, "main.mjs"), 'import { run } from "./app.mjs";\nconsole.log(run());\n');
writeFileSync(join(work, "main.cjs"), 'console.log(require("./app.cjs").run());\n');

const WITHOUT_REQUIRE_ESM = "--no-experimental-require-module"; // as before Node 20.19
for (const [version, node] of [["22", pinned("node-22")], ["24", process.execPath], ["26", pinned("node-26")]]) {
  const inNode = (...args) => run(work, node, ...args);
  test(`Node ${version}, ESM`, () => assert.equal(inNode("main.mjs"), `${RESULT}\n`));
  test(`Node ${version}, CommonJS without require(esm)`, () => assert.equal(inNode(WITHOUT_REQUIRE_ESM, "main.cjs"), `${RESULT}\n`));
  test(`Node ${version}, middleware in CommonJS without require(esm)`, () => {
    assert.equal(inNode(WITHOUT_REQUIRE_ESM, "middleware.cjs"), "express fastify fetch hono koa next\n");
  });
}
test("Node 20, which is out of support", () => assert.equal(run(work, pinned("node-20"), "main.mjs"), `${RESULT}\n`));
for (const [name, ...command] of [
  ["Deno, ESM, without permissions", "deno", "run", "main.mjs"],
  ["Deno, CommonJS", "deno", "run", "--allow-read", "main.cjs"], // `require` itself reads files
  ["Bun, ESM", "bun", "main.mjs"],
  ["Bun, CommonJS", "bun", "main.cjs"],
]) {
  const skip = !starts(command[0]) && `${command[0]} is not installed: not run`;
  test(name, { skip }, () => assert.equal(run(work, ...command), `${RESULT}\n`));
}

writeFileSync(join(work, "asks.mjs"), `import { RemoteLimiter } from "tidegate/remote";
export async function asks(url, key) {
  const limiter = new RemoteLimiter({ url, policy: "p", token: "secret", deadline: "30s" });
  const answers = await Promise.all([1, 2, 3].map((cost) => limiter.check(key, { cost })));
  const { degraded } = await new RemoteLimiter({ url: "http://127.0.0.1:1", policy: "p" }).check("a");
  return [...answers.map(({ remaining }) => remaining), typeof degraded].join(" ");
}
`);
writeFileSync(join(work, "remote.mjs"), 'import { asks } from "./asks.mjs";\nconsole.log(await asks(process.env.TIDEGATE_URL, process.env.USER_KEY));\n');
const ASKED = "8 6 3 string";
let host;
before(async () => {
  host = await startHost('[policies.p]\nlimits = [{ algorithm = "fixed_window", limit = 9, period = "36500d" }]\n');
  cleanups.push(() => host.stop());
});
describe("a limiter that asks a server", () => {
  for (const [name, ...command] of [
    ["Node", process.execPath, "remote.mjs"],
    ["Deno", "deno", "run", "--allow-net", "--allow-env", "remote.mjs"],
    ["Bun", "bun", "remote.mjs"],
  ]) {
    const skip = !starts(command[0]) && `${command[0]} is not installed: not run`;
    test(name, { skip }, () => {
      const env = { ...environment(), TIDEGATE_URL: host.url, USER_KEY: name };
      assert.equal(execFileSync(command[0], command.slice(1), { cwd: work, env, encoding: "utf8" }), `${ASKED}\n`);
    });
  }
});

test("Jest", () => assert.match(run(project("Jest", JEST), "jest", "--silent"), new RegExp(`^Jest: ${RegExp.escape(RESULT)}$`, "m")));
test("Vitest", () => assert.match(run(project("Vitest", VITEST), "vitest", "run"), new RegExp(`^Vitest: ${RegExp.escape(RESULT)}$`, "m")));

for (const { name, files, build, run: file } of FOR_NODE) {
  test(name, () => {
    const folder = project(name, files);
    run(folder, ...build);
    rmSync(join(folder, "app.mjs")); // the bundle must not need it
    assert.equal(run(folder, process.execPath, file), `${name}: ${RESULT}\n`);
  });
}

test("workerd, with a limiter in the global scope", async () => {
  const folder = project("workerd", WORKER);
  const env = { ...process.env, PATH, HOME: folder, WRANGLER_SEND_METRICS: "false" };
  const deploy = [join(workspace, "wrangler/bin/wrangler.js"), "deploy", "--dry-run", "--outdir", "out"];
  execFileSync(process.execPath, deploy, { cwd: folder, env, stdio: ["ignore", "pipe", "pipe"] });
  const modules = readdirSync(join(folder, "out")).filter((file) => /\.(js|wasm)$/.test(file)).sort();
  const main = modules.find((file) => file.endsWith(".js"));
  const others = modules.filter((file) => file !== main);
  assert.equal(others.length, 2, "the module, and the one with TOML");
  const wasm = others.map((file) => `(name = "./${file}", wasm = embed "out/${file}")`).join(", ");
  writeFileSync(join(folder, "config.capnp"), `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "app", worker = (
    modules = [(name = "./${main}", esModule = embed "out/${main}"), ${wasm}],
    compatibilityDate = "2026-11-01"))],
  sockets = [(name = "app", address = "127.0.0.1:0", http = (), service = "app")]);`);
  const workerd = createRequire(join(workspace, "x"))("workerd").default;
  const port = await started(workerd, ["serve", "config.capnp", "--control-fd=1"], { cwd: folder }, /"port":(\d+)/);
  assert.equal(await text(`http://127.0.0.1:${port}/`), RESULT);
});

const chromium = ["chromium", "chromium-browser", "google-chrome"].find(starts);
const noBrowser = chromium === undefined && "Chromium is not installed: not run";

describe("bundles in Chromium", { skip: noBrowser }, () => {
  let shown = "";
  for (const { name, files, build } of FOR_BROWSERS) {
    test(`${name}: the build`, () => {
      run(project(name, files), ...build);
      assert.ok(existsSync(join(work, name, "out/out.js")));
    });
  }
  test("Chromium shows the page", async () => {
    const urls = FOR_BROWSERS.map(({ name }) => `/${encodeURIComponent(name)}/out/out.js`);
    writeFileSync(join(work, "page.html"), page(urls, "/node_modules/tidegate/dist/"));
    shown = await dom(`${await serve(work)}/page.html`);
  });
  test("a page asks a server behind its own origin", async () => {
    writeFileSync(join(work, "remote.html"), remotePage("/node_modules/tidegate/dist/"));
    const asked = await dom(`${await serve(work, host.url)}/remote.html`);
    assert.ok(asked.includes(`remote: ${ASKED}`), asked);
  });
  for (const name of [...FOR_BROWSERS.map((project) => project.name), "no bundler"]) {
    test(name, () => assert.ok(shown.includes(`${name}: ${RESULT}`), shown));
  }
});

describe("Next.js", () => {
  let url;
  test("the build and the start", async () => { url = await startNext("next", NEXT); });
  test("a route in Node", async () => assert.equal(await text(`${url}/node`), RESULT));
  test("a route in the edge runtime", async () => assert.equal(await text(`${url}/edge`), RESULT));
  test("a route in the edge runtime that asks a server", async () => {
    assert.equal(await text(`${url}/remote/edge?server=${encodeURIComponent(host.url)}`), ASKED);
  });
  test("a limited route in Node", () => refusesTheSecond(`${url}/limited/node`));
  test("a limited route in the edge runtime", () => refusesTheSecond(`${url}/limited/edge`));
  test("a route behind a limiting proxy", () => refusesTheSecond(`${url}/behind`, "passed"));
  test("a client component in Chromium", { skip: noBrowser }, async () => {
    const shown = await dom(url);
    assert.ok(shown.includes(`Next.js: ${RESULT}`), shown);
  });
  test("a route behind a limiting middleware in the edge runtime", async () => {
    await refusesTheSecond(`${await startNext("next-middleware", NEXT_MIDDLEWARE)}/behind`, "passed");
  });
});

/** Builds and starts a project of Next.js. Returns its address. */
async function startNext(name, files) {
  const folder = project(name, files);
  run(folder, "next", "build");
  const args = [join(here, "node_modules/next/dist/bin/next"), "start", "--hostname", "127.0.0.1", "--port", "0"];
  return started(process.execPath, args, { cwd: folder, env: environment() }, /(http:\/\/127\.0\.0\.1:\d+)/);
}

/** Asks what grants one request per user. */
async function refusesTheSecond(url, front = null) {
  const ask = (user) => fetch(url, { headers: { "x-user": user } });
  const [granted, refused, other] = [await ask("alice"), await ask("alice"), await ask("bob")];
  for (const response of [granted, other]) {
    assert.equal(await response.text(), `${new URL(url).pathname} passed`);
    assert.equal(response.status, 200);
    assert.equal(response.headers.get("x-front"), front);
    assert.match(response.headers.get("ratelimit"), /^"policy";r=0;t=\d+$/);
    assert.equal(response.headers.get("ratelimit-policy"), '"policy";q=1;w=3600');
  }
  assert.equal(refused.status, 429);
  assert.equal((await refused.json()).title, "Quota exceeded");
  assert.equal(refused.headers.get("content-type"), "application/problem+json");
  assert.equal(refused.headers.get("cache-control"), "no-store");
  assert.match(refused.headers.get("retry-after"), /^\d+$/);
  assert.match(refused.headers.get("ratelimit"), /^"policy";r=0;t=\d+$/);
  assert.equal(refused.headers.get("x-front"), null);
}

// TypeScript 4.9 has no `bundler`, and 7 has no `node10`
const RESOLUTIONS = { node16: "node16", nodenext: "nodenext", bundler: "esnext", node10: "commonjs" };
for (const [version, compiler, without] of [["4.9", "typescript-4.9", "bundler"], ["5", "typescript", ""]]) {
  for (const [resolution, module] of Object.entries(RESOLUTIONS).filter(([name]) => name !== without)) {
    test(`types, TypeScript ${version}, ${resolution}`, () => {
      const sources = { "types.ts": "types", "middleware-types.ts": "middleware" };
      if (version !== "4.9") Object.assign(sources, { "using-types.ts": "using", "frameworks-types.ts": "frameworks" });
      // the types of these frameworks need a newer version, and without them a request has any type
      const untyped = version === "4.9" ? Object.fromEntries(["express", "fastify", "hono"].map((name) => [name, ["./untyped.d.ts"]])) : {};
      const files = Object.values(sources).flatMap((name) => [`${name}.mts`, `${name}.cts`]);
      const folder = project(`types-${version}-${resolution}`, {
        "package.json": "{}",
        "tsconfig.json": JSON.stringify({
          compilerOptions: {
            strict: true, noEmit: true, esModuleInterop: true, target: "es2022", types: [], module,
            lib: ["es2022", "dom", "dom.iterable", ...(version === "4.9" ? [] : ["esnext.disposable"])],
            moduleResolution: resolution === "node10" ? "node" : resolution,
            paths: untyped,
          },
          files: ["slim.ts", "dropin.ts", ...files],
        }),
        "dropin.ts": `import Store from "tidegate/express-rate-limit";
import { RateLimiterMemory } from "tidegate/rate-limiter-flexible";
import { InMemoryRateLimiter } from "tidegate/rolling-rate-limiter";
import { RemoteLimiter } from "tidegate/remote";
import { Ratelimit } from "tidegate/upstash";
export const remote: Promise<boolean> = new RemoteLimiter({ url: "https://limiter.example", policy: "p" }).check("a").then(({ allowed }) => allowed);
export const all = [new Store(), new RateLimiterMemory({ points: 1, duration: 1 }), new InMemoryRateLimiter({ interval: 1, maxInInterval: 1 }), Ratelimit];
`,
        "untyped.d.ts": "export {};\n",
        "slim.ts": 'import Preferred, { Limiter, init } from "tidegate/slim";\ninit(new Uint8Array());\nnew Preferred({ limits: [] }) satisfies Limiter;\n',
      });
      for (const [source, name] of Object.entries(sources)) {
        for (const ending of ["mts", "cts"]) cpSync(join(here, "..", source), join(folder, `${name}.${ending}`));
      }
      run(folder, process.execPath, join(here, `node_modules/${compiler}/bin/tsc`), "-p", ".");
    });
  }
}

/** Another version of Node. */
function pinned(name) {
  return join(here, "node_modules", name, "bin/node");
}

/** Makes the folder of a project, with the program. */
function project(name, files) {
  const folder = join(work, name);
  for (const [file, content] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, file)), { recursive: true });
    writeFileSync(join(folder, file), content);
  }
  for (const file of ["app.mjs", "app.cjs", "asks.mjs", "report.mjs"]) cpSync(join(work, file), join(folder, file));
  return folder;
}

function environment() {
  return { ...process.env, PATH, NEXT_TELEMETRY_DISABLED: "1", CI: "1", NO_COLOR: "1", FORCE_COLOR: undefined, NODE_TEST_CONTEXT: undefined };
}

/** Runs a program and returns what it prints. Its failure shows all that it printed. */
function run(cwd, program, ...args) {
  try {
    return execFileSync(program, args, { cwd, env: environment(), encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
  } catch (error) {
    throw new Error(`${program} ${args.join(" ")}\n${error.stdout}\n${error.stderr}`);
  }
}

function starts(program) {
  try {
    run(here, program, "--version");
    return true;
  } catch {
    return false;
  }
}

/** Starts a server, and waits for what it prints. The server ends with the tests. */
async function started(program, args, options, pattern) {
  const server = start(program, args, options);
  cleanups.push(server.stop);
  return (await server.said(pattern))[1];
}

async function text(url) {
  const response = await fetch(url);
  const body = await response.text();
  assert.equal(response.status, 200, body);
  return body;
}

/** The page as Chromium shows it once all is loaded. */
async function dom(url) {
  const profile = mkdtempSync(join(tmpdir(), "tidegate-chromium-"));
  cleanups.push(() => rmSync(profile, { recursive: true, force: true }));
  const quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--virtual-time-budget=10000"];
  const args = [...quiet, `--user-data-dir=${profile}`, "--dump-dom", url];
  return (await promisify(execFile)(chromium, args, { encoding: "utf8" })).stdout;
}

/** Serves the files of a folder, and the API of a server. */
async function serve(folder, api) {
  const types = { ".html": "text/html", ".js": "text/javascript", ".mjs": "text/javascript" };
  const server = createServer(async (request, response) => {
    if (api !== undefined && request.url.startsWith("/v1/")) {
      const { method, headers: { authorization } } = request;
      const answer = await fetch(api + request.url, { method, headers: { authorization }, body: Buffer.concat(await request.toArray()) });
      return response.writeHead(answer.status, [...answer.headers]).end(await answer.text());
    }
    const file = join(folder, decodeURIComponent(new URL(request.url, "http://x").pathname));
    if (!existsSync(file)) return response.writeHead(404).end();
    response.writeHead(200, { "content-type": types[extname(file)] ?? "application/octet-stream" }).end(readFileSync(file));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  cleanups.push(() => { server.closeAllConnections(); server.close(); });
  return `http://127.0.0.1:${server.address().port}`;
}
