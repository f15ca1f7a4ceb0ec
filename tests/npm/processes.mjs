// Children of a test: redis-server, hosts, workerd, other processes of Node. What they print is kept, and its end is printed if a test fails
// or hangs. They end with this process.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { afterEach } from "node:test";

/** As much as is kept of what a child prints, and as many lines as are shown. */
const [MOST_KEPT, MOST_SHOWN] = [65_536, 40];

const children = new Set();

/** Starts a program. `said` waits for what it prints on either output; `stop` kills it and waits until it has ended. */
export function start(program, args, options = {}) {
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"], ...options });
  const kept = { name: `${program} ${args.join(" ")}, process ${child.pid}`, text: "", isShown: false };
  let end; // why nothing more comes
  let wake = () => {};
  let news = new Promise((resolve) => { wake = resolve; });
  const tell = () => {
    wake();
    news = new Promise((resolve) => { wake = resolve; });
  };
  for (const output of [child.stdout, child.stderr]) {
    output.setEncoding("utf8").on("data", (text) => {
      kept.text = (kept.text + text).slice(-MOST_KEPT);
      kept.isShown = false;
      tell();
    });
  }
  child.on("error", (error) => { end = error.message; tell(); });
  child.on("close", (code, signal) => { end = `ended with ${signal ?? code}`; tell(); });
  children.add({ child, kept });
  return Object.assign(child, {
    async said(pattern) {
      for (;;) {
        const found = pattern.exec(kept.text);
        if (found !== null) return found;
        if (end !== undefined) throw new Error(`expected ${pattern} of ${kept.name}; it ${end}`);
        await news;
      }
    },
    async stop() {
      child.kill("SIGKILL");
      if (child.pid !== undefined && child.exitCode === null && child.signalCode === null) await once(child, "exit");
    },
  });
}

/** Prints what the children have printed since this was called before. */
function show() {
  for (const { kept } of children) {
    if (kept.isShown || kept.text === "") continue;
    kept.isShown = true;
    console.error(`--- the end of what ${kept.name} has printed\n${kept.text.trimEnd().split("\n").slice(-MOST_SHOWN).join("\n")}`);
  }
}

afterEach(({ error }) => {
  if (error !== null) show();
});

process.on("SIGTERM", () => { // the runner ends a file that hangs
  show();
  process.exit(1);
});

process.on("exit", () => {
  for (const { child } of children) child.kill("SIGKILL");
});
