// The Worker of the package: the template is deployed from the packed tarball, and other Workers ask it.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";

import { bundle, serve } from "../deployed.mjs";
import { project } from "../installed.mjs";

const folder = project();
const tools = fileURLToPath(new URL("../../../node_modules/.bin/", import.meta.url));
const installed = join(folder, "node_modules/tidegate");
const readme = readFileSync(new URL("../../../README.md", import.meta.url), "utf8");
const [, copy] = /^(cp .*?)(?: +#.*)?$/m.exec(readme);
execFileSync("sh", ["-c", copy], { cwd: folder });
cpSync(join(installed, "caller"), join(folder, "caller"), { recursive: true });
const modules = bundle(folder, "worker.js");
const example = { modules: bundle(join(folder, "caller"), "caller.js"), variables: { TIDEGATE_TOKEN: "secret" } };

/** A Worker that calls the method in the path with the arguments in the body. */
const anyCall = {
  modules: [{
    name: "main",
    text: `export default {
      async fetch(request, { TIDEGATE }) {
        const method = new URL(request.url).pathname.slice(1);
        try {
          return Response.json({ answer: await TIDEGATE[method](...await request.json()) });
        } catch (error) {
          return Response.json({ thrown: error.message });
        }
      },
    };`,
  }],
};

/** Nothing comes back while a test runs. */
const POLICIES = `
[policies.api]
limits = [{ algorithm = "token_bucket", capacity = 5, rate = "1/30d" }]

[policies.tokens]
limits = [{ algorithm = "token_bucket", capacity = 50, rate = "1/30d" }]
reservations = {}
idempotency = "1d"

[policies.jobs]
limits = [{ algorithm = "concurrency", capacity = 2, time_to_live = "1h" }]
`;

let storages = 0;
const running = [];
after(() => Promise.all(running.map((server) => server.stop())));

async function start(options) {
  const where = options.where ?? join(folder, `run-${(storages += 1)}`);
  const server = await serve(where, {
    caller: options.caller ?? anyCall,
    tidegate: { modules, variables: options.variables ?? { TIDEGATE_TOKEN: "secret" } },
    policies: options.policies,
  });
  running.push(server);
  const post = async (path, body, token = "secret") => {
    const headers = { authorization: `Bearer ${token}` };
    const response = await fetch(server.tidegate + path, { method: "POST", headers, body: JSON.stringify(body) });
    return { status: response.status, ...(await response.json()) };
  };
  const call = async (method, ...given) => {
    const response = await fetch(`${server.caller}/${method}`, { method: "POST", body: JSON.stringify(given) });
    return response.json();
  };
  return { ...server, post, call };
}

test("the template decides, and what it has counted outlives its end", async () => {
  const where = join(folder, "run-template");
  const inTheHour = ({ limits }) => limits.find(({ name }) => name === "hour").remaining;
  for (const remaining of [993, 986]) {
    const server = await start({ where });
    const decision = await server.post("/v1/check", { policy: "api", key: "user:42", cost: 7 });
    assert.equal(decision.status, 200);
    assert.equal(decision.allowed, true);
    assert.equal(inTheHour(decision), remaining);
    await server.stop(); // SIGKILL
    running.pop();
  }
});

test("the template deploys no policy file that is wrong", () => {
  const file = join(folder, "policies.toml");
  const right = readFileSync(file, "utf8");
  writeFileSync(file, right.replace('rate = "10/s"', 'rate = "10/fortnight"'));
  try {
    assert.throws(() => bundle(folder, "worker.js"), { message: /policies\.toml: line 6, column \d+: policies\.api\.limits\[0\]\.rate: expected/ });
  } finally {
    writeFileSync(file, right);
  }
});

test("the template pins a wrangler and a Node that fit each other, and a date that both know", () => {
  const read = (file) => JSON.parse(readFileSync(file, "utf8"));
  const ours = fileURLToPath(new URL("../../../", import.meta.url));
  const [template, wrangler, workerd] = [
    join(installed, "template/package.json"), join(ours, "node_modules/wrangler/package.json"), join(ours, "node_modules/workerd/package.json"),
  ].map(read);
  assert.equal(template.devDependencies.wrangler, wrangler.version, "the one that the tests use");
  assert.equal(`${template.engines.node}.0`, wrangler.engines.node);
  const [, date] = /^compatibility_date = "(\d{4}-\d\d-\d\d)"$/m.exec(readFileSync(join(installed, "template/wrangler.toml"), "utf8"));
  assert.ok(date.replaceAll("-", "") <= workerd.version.split(".")[1], `${date}, and workerd ${workerd.version}`);
});

test("the docs show the template", () => {
  const [, code] = readFileSync(join(installed, "template/worker.js"), "utf8").split(/^\/\/.*\n/);
  const page = readFileSync(new URL("../../../docs/operations.md", import.meta.url), "utf8");
  assert.ok(page.includes(`\`\`\`js\n${code}\`\`\``));
});

test("the fault of a policy file is told to no caller", async () => {
  const server = await start({ policies: POLICIES.replace('"1/30d"', '"1/fortnight"') });
  const { status, detail } = await server.post("/v1/check", { policy: "api", key: "a" });
  assert.equal(status, 500);
  assert.equal(detail, "the server is not configured correctly, and its log says why");
  assert.equal((await server.call("check", { policy: "api", key: "a" })).thrown, detail);
});

test("the example asks by RPC and by fetch", async () => {
  const policies = POLICIES.replace("[policies.api]", '[policies.api]\ndeny = ["ip:198.51.100.0/24"]');
  const server = await start({ caller: example, policies });
  const get = (path) => fetch(server.caller + path, { headers: { "cf-connecting-ip": "192.0.2.7" } });
  for (const path of ["/", "/fetch", "/", "/fetch", "/"]) {
    const served = await get(path);
    assert.deepEqual([served.status, await served.text()], [200, "served\n"]);
  }
  for (const path of ["/", "/fetch"]) {
    const refused = await get(path);
    assert.deepEqual([refused.status, await refused.text()], [429, "too many requests\n"]);
    assert.ok(Number(refused.headers.get("retry-after")) > 2_000_000); // most of 30 days
    const denied = await fetch(server.caller + path, { headers: { "cf-connecting-ip": "198.51.100.7" } });
    assert.deepEqual([denied.status, denied.headers.get("retry-after")], [403, null]);
  }
});

test("each call by RPC answers what HTTP answers", async () => {
  const { call } = await start({ policies: POLICIES });
  const api = { policy: "api", key: "a/b c" };
  const job = { policy: "jobs", key: "k", lease: "job 1" };

  const granted = (await call("check", { ...api, cost: 4 })).answer;
  assert.deepEqual([granted.allowed, granted.remaining, granted.policy], [true, 1, "api"]);
  const { decisions } = (await call("check", { checks: [{ ...api, cost: 2 }, { ...api, key: "b" }] })).answer;
  assert.deepEqual(decisions.map(({ allowed, remaining }) => [allowed, remaining]), [[false, 1], [true, 4]]);
  assert.equal((await call("peek", { ...api, cost: 2 })).answer.allowed, false);
  assert.equal((await call("peek", api)).answer.remaining, 1);
  assert.equal((await call("refund", { ...api, units: 3 })).answer.remaining, 4);

  const tokens = { policy: "tokens", key: "k" };
  const { id, reserved, remaining } = (await call("reserve", { ...tokens, cost: 40, id: "a/b" })).answer;
  assert.deepEqual([id, reserved, remaining], ["a/b", 40, 10]);
  const { charged, late, ...committed } = (await call("commit", { ...tokens, id, actual: 12 })).answer;
  assert.deepEqual([charged, late, committed.remaining], [12, false, 38]);

  const once = { ...tokens, cost: 5, idempotency_key: "x" };
  const first = (await call("check", once)).answer;
  assert.deepEqual([first.remaining, (await call("check", once)).answer], [33, first]);
  assert.match((await call("check", { ...once, cost: 6 })).thrown, /`idempotency-key`: expected the request for which this key was used first/);

  assert.equal((await call("acquire", job)).answer.lease, "job 1");
  assert.equal((await call("renew", job)).answer.live, true);
  assert.equal((await call("release", job)).answer.live, true);
  assert.equal((await call("release", job)).answer.live, false);
});

test("a problem is thrown with its text, and takes nothing", async () => {
  const { call, post } = await start({ policies: POLICIES });
  const api = { policy: "api", key: "a" };
  const unknown = { policy: "nope", key: "a" };
  const answered = await post("/v1/check", unknown);
  assert.equal(answered.status, 404);
  assert.deepEqual(await call("check", unknown), { thrown: answered.detail });
  const cases = [
    ["check", [{ ...api, cost: 6 }], /cost/],
    ["check", [{ ...api, key: "k".repeat(300_000) }], /262144/],
    ["check", [], /^expected a value, found the end of the text/],
    ["check", [null], /null/],
    ["peek", [{ policy: "api" }], /^`key`: expected a string other than `\.` and `\.\.`, found undefined$/],
    ["peek", [{ policy: "..", key: "gate" }], /^`policy`: expected .*, found `\.\.`$/],
    ["renew", [{ policy: "jobs", key: "k", lease: ".." }], /^`lease`: expected .*, found `\.\.`$/],
    ["release", [{ policy: "jobs", lease: "a" }], /^`key`: expected a string/],
    ["acquire", [api], /lease/],
    ["reset", [api], /reset/],
  ];
  for (const [method, given, text] of cases) {
    const { thrown } = await call(method, ...given);
    assert.match(String(thrown), text, `${method} ${JSON.stringify(given).slice(0, 80)}`);
  }
  assert.equal((await call("peek", api)).answer.remaining, 5);
});

test("a binding needs no token for RPC, and requests by fetch need theirs", async () => {
  const caller = {
    modules: [{
      name: "main",
      text: "export default { fetch: (request, { TIDEGATE }) => TIDEGATE.fetch(request) };",
    }],
  };
  const { caller: url } = await start({ caller, policies: POLICIES });
  const ask = async (headers) => {
    const body = JSON.stringify({ policy: "api", key: "a" });
    return (await fetch(`${url}/v1/check`, { method: "POST", headers, body })).status;
  };
  assert.equal(await ask({}), 401);
  assert.equal(await ask({ authorization: "Bearer secret" }), 200);

  const check = { policy: "api", key: "a" };
  const administrated = await start({ policies: POLICIES, variables: { TIDEGATE_ADMIN_TOKEN: "admin" } });
  assert.equal((await administrated.call("check", check)).answer.allowed, true);
  const shut = await start({ policies: POLICIES, variables: {} });
  const { detail } = await shut.post("/v1/check", check);
  assert.deepEqual(await shut.call("check", check), { thrown: detail });
  const open = await start({ policies: `auth = "none"\n${POLICIES}`, variables: {} });
  assert.equal((await open.call("check", check)).answer.allowed, true);
});

test("a Worker asks by `tidegate/remote`", async () => {
  const file = join(folder, "remote-caller.js");
  writeFileSync(file, `import { RemoteLimiter } from "tidegate/remote";
    let limiter;
    export default {
      async fetch(request, { TIDEGATE, TIDEGATE_TOKEN: token }) {
        limiter ??= new RemoteLimiter({ url: "https://tidegate", policy: "tokens", token, deadline: "30s", fetch: (url, init) => TIDEGATE.fetch(url, init) });
        const ask = ([method, ...given]) => limiter[method](...given).catch(({ code, message }) => ({ code, message }));
        return Response.json(await Promise.all((await request.json()).map(ask)));
      },
    };`);
  const bundled = join(folder, "remote-bundled.js");
  execFileSync(join(tools, "esbuild"), [file, "--bundle", "--format=esm", "--log-level=warning", `--outfile=${bundled}`], { cwd: folder });
  const caller = { modules: [{ name: "main", file: bundled }], variables: { TIDEGATE_TOKEN: "secret" } };
  const { caller: url } = await start({ caller, policies: POLICIES });
  const ask = async (...calls) => (await fetch(url, { method: "POST", body: JSON.stringify(calls) })).json();
  const checks = await ask(["check", "a/b", { cost: 20 }], ["check", "a/b"], ["check", "a/b", { cost: 51 }]);
  assert.deepEqual(checks.map(({ remaining, code }) => code ?? remaining), [30, 29, "COST_EXCEEDS_CAPACITY"]);
  const [{ id, reserved }] = await ask(["reserve", "a/b", { cost: 20 }]);
  assert.equal(reserved, 20);
  assert.equal((await ask(["commit", "a/b", id, 5]))[0].remaining, 24);
  const once = ["check", "a/b", { cost: 4, idempotencyKey: "once" }];
  assert.deepEqual((await ask(once, once)).map(({ remaining }) => remaining), [20, 20]);
  assert.deepEqual((await ask(["peek", "a/b"], ["reset", "a/b"])).map(({ remaining, code }) => code ?? remaining), [20, "UNAUTHORIZED"]);
});

test("RPC reaches the API behind routes, which serve the API to nobody else", async () => {
  const route = '[[routes]]\nmatch = "/*"\npolicy = "api"\nupstream = "http://127.0.0.1:1"\n';
  const { call, tidegate } = await start({ policies: route + POLICIES });
  const { answer, thrown } = await call("check", { policy: "api", key: "a" });
  assert.equal(thrown, undefined);
  assert.equal(answer.remaining, 4);
  const headers = { authorization: "Bearer secret", "cf-connecting-ip": "192.0.2.7" };
  const routed = await fetch(`${tidegate}/v1/keys/api/a`, { headers });
  assert.notEqual(routed.status, 200); // nobody listens upstream
});
