// A tiny project for each loader: its files, the commands that build it, and where the result runs. The package is in
// `node_modules` of the folder above, unpacked from its tarball; the tools are in `node_modules` above that.
//
// `entry` is the script that every bundler begins with. It hands its result to `report`, which prints it in Node and writes
// it into the page in a browser.

const entry = (name) => `import { run } from "./app.mjs";
import { report } from "./report.mjs";
report(${JSON.stringify(name)}, run());
`;

const webpack = (target) => ({
  "webpack.config.cjs": `module.exports = {
  mode: "production", performance: false, entry: "./entry.mjs", target: "${target}",
  output: { path: __dirname + "/out", filename: "out.js" },
};`,
});

const vite = {
  "vite.config.mjs": `export default {
  logLevel: "warn",
  build: { outDir: "out", chunkSizeWarningLimit: 2000, rollupOptions: { input: "entry.mjs", output: { entryFileNames: "out.js" } } },
};`,
};

const rollup = (browser) => ({
  "rollup.config.mjs": `import { nodeResolve } from "@rollup/plugin-node-resolve";
export default {
  input: "entry.mjs", output: { file: "out/out.${browser ? "js" : "mjs"}", format: "es" },
  plugins: [nodeResolve({ browser: ${browser}, exportConditions: ${browser ? "[]" : '["node"]'} })],
};`,
});

const esbuild = ["esbuild", "entry.mjs", "--bundle", "--minify", "--log-level=warning"];

/** Bundles that run in Node. */
export const FOR_NODE = [
  { name: "esbuild for Node, ESM", build: [...esbuild, "--platform=node", "--format=esm", "--outfile=out/out.mjs"], run: "out/out.mjs" },
  { name: "esbuild for Node, CommonJS", build: [...esbuild, "--platform=node", "--outfile=out/out.cjs"], run: "out/out.cjs" },
  { name: "webpack for Node", files: webpack("node"), build: ["webpack"], run: "out/out.js" },
  { name: "Rollup for Node", files: rollup(false), build: ["rollup", "--silent", "-c"], run: "out/out.mjs" },
];

/** Bundles that run in a browser. */
export const FOR_BROWSERS = [
  { name: "Vite", files: vite, build: ["vite", "build"] },
  { name: "webpack", files: webpack("web"), build: ["webpack"] },
  { name: "esbuild", build: [...esbuild, "--format=esm", "--outfile=out/out.js"] },
  { name: "Rollup", files: rollup(true), build: ["rollup", "--silent", "-c"] },
];

for (const project of [...FOR_NODE, ...FOR_BROWSERS]) {
  project.files = { "package.json": "{}", "entry.mjs": entry(project.name), ...project.files };
}

export const JEST = {
  "package.json": "{}",
  "jest.config.cjs": "module.exports = { transform: {} };",
  "app.test.cjs": `const { run } = require("./app.cjs");
test("Jest", () => { process.stdout.write(\`Jest: \${run()}\\n\`); });`,
};

export const VITEST = {
  "package.json": "{}",
  "app.test.mjs": `import { test } from "vitest";
import { run } from "./app.mjs";
test("Vitest", () => { process.stdout.write(\`Vitest: \${run()}\\n\`); });`,
};

// `?module` is known for files, not for the exports of a package
const route = (runtime, module) => `import { run } from "../../app.mjs";
${module && `import module from ${JSON.stringify(module)};`}
export const runtime = ${JSON.stringify(runtime)};
export const dynamic = "force-dynamic";
export function GET() { return new Response(run(${module && "module"})); }`;

/** A file of Next.js that limits the requests to it. `handler` answers the others. */
const limited = (exports, handler) => `import { NextResponse } from "next/server";
import { Limiter } from "tidegate";
import { rateLimit } from "tidegate/next";
const limiter = new Limiter({ limits: [{ algorithm: "fixed_window", limit: 1, period: "1h", start: "first" }] });
const key = (request) => request.headers.get("x-user") ?? undefined;
${exports} = rateLimit(limiter, ${handler}, { key });
`;
const limitedRoute = (runtime) => limited(
  `export const runtime = ${JSON.stringify(runtime)};\nexport const GET`,
  "async (request) => new NextResponse(`${request.nextUrl.pathname} passed`)",
);
/** The file in front of all routes, whose name depends on the version of Next.js. */
const limitedProxy = (name) => limited(
  `export const config = { matcher: "/behind" };\nexport const ${name}`,
  'async () => NextResponse.next({ headers: { "x-front": "passed" } })',
);

const NEXT_APP = {
  "package.json": "{}",
  "next.config.mjs": `import { resolve } from "node:path";
export default { turbopack: { root: resolve(import.meta.dirname, "../..") }, experimental: { cpus: 1 } };`,
  "app/layout.jsx": "export default function Layout({ children }) { return <html lang=\"en\"><body>{children}</body></html>; }",
  "app/behind/route.js": 'export const GET = async () => new Response("/behind passed");',
};

export const NEXT = {
  ...NEXT_APP,
  "app/page.jsx": `"use client";
import { useEffect, useState } from "react";
import { run } from "../app.mjs";
export default function Page() {
  const [result, setResult] = useState("no result");
  useEffect(() => setResult(run()), []);
  return <p>{\`Next.js: \${result}\`}</p>;
}`,
  "app/node/route.js": route("nodejs", ""),
  "app/edge/route.js": route("edge", "../../../node_modules/tidegate/dist/tidegate.wasm?module"),
  "app/remote/edge/route.js": `import { asks } from "../../../asks.mjs";
export const runtime = "edge";
export const dynamic = "force-dynamic";
export const GET = async ({ url }) => new Response(await asks(new URL(url).searchParams.get("server"), "edge"));
`,
  "app/limited/node/route.js": limitedRoute("nodejs"),
  "app/limited/edge/route.js": limitedRoute("edge"),
  "proxy.js": limitedProxy("proxy"),
};

/** Before Next.js 16 the proxy was a middleware, and ran in the edge runtime. */
export const NEXT_MIDDLEWARE = { ...NEXT_APP, "middleware.js": limitedProxy("middleware") };

export const WORKER = {
  "package.json": "{}",
  "wrangler.toml": 'name = "app"\nmain = "worker.mjs"\ncompatibility_date = "2026-11-01"\n',
  "worker.mjs": `import { run } from "./app.mjs";
import module from "tidegate/tidegate.wasm";
export default { fetch() { return new Response(run(module)); } };`,
};

/** The page for all bundles, and for the package without any bundler, whose scripts are in the folder `unpacked`. */
export const page = (bundles, unpacked) => `<!doctype html><html><body><script type="importmap">
${JSON.stringify({ imports: {
  tidegate: `${unpacked}browser.js`, "tidegate/remote": `${unpacked}remote.js`, "tidegate/slim": `${unpacked}slim.js`, "tidegate/toml": `${unpacked}toml/browser.js`,
} })}</script>
${bundles.map((url) => `<script type="module" src="${url}"></script>`).join("\n")}
<script type="module">${entry("no bundler").replaceAll('"./', '"/')}</script></body></html>`;

/** A page that asks the server behind its own origin. */
export const remotePage = (unpacked) => `<!doctype html><html><body><script type="importmap">
${JSON.stringify({ imports: { "tidegate/remote": `${unpacked}remote.js` } })}</script>
<script type="module">import { asks } from "/asks.mjs";
import { report } from "/report.mjs";
report("remote", await asks(location.origin, "Chromium"));
</script></body></html>`;
