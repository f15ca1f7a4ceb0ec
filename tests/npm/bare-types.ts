// Compiled without the types of the DOM and of Node, never run.
import { Limiter } from "tidegate";
import type { Signal, WaitOptions } from "tidegate";

declare const signal: Signal;
const options: WaitOptions = { signal };
const limiter = new Limiter("limits = []");
void limiter.waitFor("key", options);
void limiter.run("key", (lost) => lost.addEventListener("abort", () => {}));
