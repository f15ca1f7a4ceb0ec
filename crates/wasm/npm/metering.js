// What reads the true costs of requests from their responses, for middleware whose limiter asks a server.
import { NativeMetering } from "#native";
import { caught } from "./errors.js";
import { requireText } from "./input.js";
import { requireReady } from "./module.js";

/** @type {import("./index.js").Metering} */
export function metering(text) {
  requireReady();
  requireText("text", "INVALID_OPTION", text);
  return caught(() => new NativeMetering(text));
}
