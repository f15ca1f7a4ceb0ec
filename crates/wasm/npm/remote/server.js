// The HTTP API of a server: sends a call within its deadline, and reads what comes back.
import { coded } from "../errors.js";
import { Silence } from "../silence.js";
import { afterReads } from "../time.js";

/** @import { ErrorCode } from "../index.js" */
/** @typedef {(url: string, init: any) => Promise<Response>} Fetch */
/** @typedef {{ method: string, path: string, body?: string, idempotencyKey?: string, repeats?: boolean }} Sent a call. If it `repeats`, sending it twice does no more than sending it once */
/** @typedef {{ status: number, headers: Headers, text: string }} Reply */

/** Nobody knows what the server decided, if it did. */
export class Away extends Error {}

/** What the server says of a wrong call, and the code of the error. */
const CODES = new Map(/** @type {[string, ErrorCode][]} */ ([
  ["urn:tidegate:invalid-request", "INVALID_REQUEST"],
  ["urn:tidegate:invalid-key", "INVALID_KEY"],
  ["urn:tidegate:cost-exceeds-capacity", "COST_EXCEEDS_CAPACITY"],
  ["urn:tidegate:unknown-policy", "UNKNOWN_POLICY"],
  ["urn:tidegate:unauthorized", "UNAUTHORIZED"],
  ["urn:tidegate:idempotency-key-reused", "INVALID_REQUEST"],
]));

/** The longest answer that is read: more than 1,000 checks under 16 limits each. */
const MOST_ANSWER_BYTES = 8_388_608;
/** The most characters that an error repeats of what came from the server or the runtime. */
const MOST_SHOWN = 300;

/** Whether this is a Cloudflare Worker, whose requests have a context each: none can ask in the background. */
export const IS_WORKER = globalThis.navigator?.userAgent === "Cloudflare-Workers";

export class Server {
  #url;
  #token;
  #deadlineMs;
  #fetch;
  #silence;

  /** @param {string} url @param {string | undefined} token @param {number} deadlineMs @param {Fetch | undefined} fetch */
  constructor(url, token, deadlineMs, fetch) {
    this.#url = url;
    this.#token = token;
    this.#deadlineMs = deadlineMs;
    this.#fetch = fetch;
    this.#silence = new Silence(deadlineMs);
  }

  /** When a call that begins now has to end, by a clock that never goes back. */
  end() {
    return performance.now() + this.#deadlineMs;
  }

  /**
   * The JSON that answers a call.
   *
   * @type {(sent: Sent, end?: number) => Promise<any>}
   */
  async ask(sent, end) {
    const reply = await this.send(sent, end);
    if (reply.status === 200) return parsed(reply.text);
    throw this.refusal(reply);
  }

  /**
   * The error that a reply stands for: the call is wrong and took nothing, or the reply is none of this API.
   *
   * @type {(reply: Reply) => Error}
   */
  refusal({ status, text }) {
    const { type, detail } = status >= 400 && status < 500 ? problem(text) : NO_PROBLEM;
    const code = CODES.get(type);
    if (code !== undefined) return coded(code, this.#shown(detail));
    const hint = status === 404 ? "; expected as `url` the address before `/v1`" : "";
    return new Away(`server: expected an answer of the API, found the status ${status}${hint}`);
  }

  /**
   * Sends a call within its deadline, and a second time if its answer was lost and a repeat does no more.
   *
   * @type {(sent: Sent, end?: number) => Promise<Reply>}
   */
  async send(sent, end = this.end()) {
    const own = /** @type {Sent} */ ({ __proto__: null, ...sent });
    const late = () => new Away(`server: no answer within ${this.#deadlineMs} ms`);
    if (this.#silence.has()) throw late();
    const ending = new AbortController();
    /** @type {Promise<never>} */
    const ended = new Promise((_, reject) => {
      ending.signal.addEventListener("abort", () => {
        this.#silence.begin(undefined, IS_WORKER ? undefined : () => this.#question());
        reject(late());
      });
    });
    const timer = setTimeout(() => afterReads(() => ending.abort()), Math.max(0, end - performance.now()));
    try {
      return await Promise.race([this.#attempts(own, ending.signal), ended]);
    } finally {
      clearTimeout(timer);
    }
  }

  /** @type {(sent: Sent, signal: AbortSignal) => Promise<Reply>} */
  async #attempts(sent, signal) {
    try {
      return await this.#attempt(sent, signal);
    } catch (error) {
      if (!sent.repeats || signal.aborted) throw error;
      return await this.#attempt(sent, signal);
    } finally {
      if (!signal.aborted) this.#silence.end();
    }
  }

  /** Asks a silent server whether it is back. Any reply says so, and so does an error that comes at once: then no call waits. */
  async #question() {
    const signal = AbortSignal.timeout(this.#deadlineMs);
    await this.#attempt({ method: "GET", path: "/healthz" }, signal).catch((error) => {
      if (signal.aborted) throw error;
    });
  }

  /** @type {(sent: Sent, signal: AbortSignal) => Promise<Reply>} */
  async #attempt({ method, path, body, idempotencyKey }, signal) {
    /** @type {Record<string, any>} what inherits nothing that another library has put on `Object.prototype` */
    const headers = { __proto__: null };
    if (this.#token !== undefined) headers.authorization = `Bearer ${this.#token}`;
    if (idempotencyKey !== undefined) headers["idempotency-key"] = `"${idempotencyKey}"`;
    if (body !== undefined) headers["content-type"] = "application/json";
    // a redirect is no answer, and must not get the token
    const init = { __proto__: null, method, headers, body, signal, redirect: "manual" };
    try {
      const fetch = this.#fetch ?? globalThis.fetch;
      const response = await fetch(this.#url + path, init);
      return { status: response.status, headers: response.headers, text: await textOf(response) };
    } catch (error) {
      throw error instanceof Away ? error : new Away(this.#shown(`server: ${causes(error)}`));
    }
  }

  /**
   * A text for an error or a log.
   *
   * @type {(text: string) => string}
   */
  #shown(text) {
    const shown = this.#token === undefined ? text : text.replaceAll(this.#token, "…");
    return shown.slice(0, MOST_SHOWN).toWellFormed();
  }
}

/**
 * A text in a path. Whoever reads a URL resolves the segments "." and "..", however they are written.
 *
 * @type {(field: string, code: ErrorCode, text: string) => string}
 */
export function segment(field, code, text) {
  if (text !== "." && text !== "..") return encodeURIComponent(text);
  throw coded(code, `\`${field}\`: expected a text that a URL can carry, found "${text}"`);
}

/**
 * What a body says, with the fields that the caller gave. Runtimes write U+FFFD in place of what is no text, so the server takes it
 * only as an escape.
 *
 * @type {(fields: Record<string, unknown>) => string}
 */
export const bodyOf = (fields) => JSON.stringify({ __proto__: null, ...fields }).replaceAll("\ufffd", "\\ufffd");

/** @type {(text: string) => any} */
export function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Away("server: expected an answer of the API, found no JSON");
  }
}

const NO_PROBLEM = { type: "", detail: "" };

/** @type {(text: string) => { type: string, detail: string }} */
function problem(text) {
  let found;
  try {
    found = JSON.parse(text);
  } catch {
    return NO_PROBLEM;
  }
  if (typeof found !== "object" || found === null || !Object.hasOwn(found, "type") || !Object.hasOwn(found, "detail")) return NO_PROBLEM;
  return typeof found.type === "string" && typeof found.detail === "string" ? found : NO_PROBLEM;
}

/** @type {(response: Response) => Promise<string>} */
async function textOf({ body }) {
  if (body === null) return "";
  const reader = body.getReader();
  const decoder = new TextDecoder("utf-8", { fatal: true });
  let text = "";
  for (let bytes = 0; ;) {
    const { done, value } = await reader.read();
    if (done) return text + decoder.decode();
    bytes += value.byteLength;
    if (bytes > MOST_ANSWER_BYTES) {
      reader.cancel().catch(() => {});
      throw new Away(`server: expected an answer of at most ${MOST_ANSWER_BYTES} bytes, found more`);
    }
    text += decoder.decode(value, { stream: true });
  }
}

/**
 * An error and its causes: that of `fetch` says only that it failed.
 *
 * @type {(error: any) => string}
 */
function causes(error) {
  const texts = [];
  for (let at = error; at instanceof Error && texts.length < 4; at = at.cause) texts.push(at.message || /** @type {any} */ (at).code);
  return texts.join(": ") || String(error);
}
