// Compiled without the types of the DOM and of Node, never run.
import { Limiter } from "tidegate";
import type { Signal, WaitOptions } from "tidegate";

declare const signal: Signal;
const options: WaitOptions = { signal };
void new Limiter("limits = []").waitFor("key", options);
