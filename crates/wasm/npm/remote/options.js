// The options of a limiter that asks a server.
import { coded } from "../errors.js";
import { known, requireText, requireType, shortened } from "../input.js";
import { kindOf } from "../middleware/kind.js";
import { deadlineUs } from "../span.js";
import { milliseconds } from "../time.js";
import { Server } from "./server.js";

/** @import { Metering } from "../index.js" */

/**
 * The server, the policy, and whether requests pass while nobody decides.
 *
 * @type {(options: unknown) => { server: Server, policy: string, passes: boolean, metering?: Metering }}
 */
export function remoteOptions(options) {
  const names = ["url", "policy", "token", "deadline", "onError", "metering", "fetch"];
  const { url, policy, token, deadline = "1s", onError = "closed", metering, fetch } = known("options", "INVALID_OPTION", options, names);
  requireText("options.policy", "INVALID_OPTION", policy);
  for (const [name, value] of [["fetch", fetch], ["metering", metering]]) requireType(`options.${name}`, "INVALID_OPTION", value, "function", true);
  if (onError !== "open" && onError !== "closed") {
    const found = typeof onError === "string" ? JSON.stringify(shortened(onError)) : kindOf(onError);
    throw coded("INVALID_OPTION", `\`options.onError\`: expected "open" or "closed", found ${found}`);
  }
  const deadlineMs = milliseconds(deadlineUs(deadline));
  return { server: new Server(baseOf(url), tokenOf(token), deadlineMs, fetch), policy, passes: onError === "open", metering };
}

/**
 * The URL without a slash at its end. An error shows no part of it, because it may contain a password.
 *
 * @type {(url: any) => string}
 */
function baseOf(url) {
  requireText("options.url", "INVALID_OPTION", url);
  const parsed = URL.canParse(url) ? new URL(url) : undefined;
  const isPlain = parsed !== undefined && /^https?:$/.test(parsed.protocol) && !/[?#]/.test(url);
  if (isPlain && parsed.username === "" && parsed.password === "") return parsed.href.replace(/\/+$/, "");
  throw coded("INVALID_OPTION", "`options.url`: expected a URL such as https://limiter.example, without a user, a query and a fragment; found another text");
}

/**
 * A token that a header can carry: the runtime's own error would show it.
 *
 * @type {(token: any) => string | undefined}
 */
function tokenOf(token) {
  requireText("options.token", "INVALID_OPTION", token, true);
  if (token === undefined || /^[\x21-\x7e]+$/.test(token)) return token;
  throw coded("INVALID_OPTION", "`options.token`: expected printable ASCII without spaces, found other characters");
}
