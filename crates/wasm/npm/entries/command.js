#!/usr/bin/env node
// The command of `npx tidegate`. Its module is part of the script, as that of `redis.js`.
import module from "#module";

import { run } from "../command.js";
import { start } from "../module.js";

start(new WebAssembly.Module(module));

process.stdout.on("error", (/** @type {any} */ error) => {
  if (error.code === "EPIPE") process.exit(141); // nobody reads any more: the code of a program that SIGPIPE ended
  console.error(`error: the output cannot be written: ${error.message}`);
  process.exit(2);
});
process.exitCode = run(process.argv.slice(2));
