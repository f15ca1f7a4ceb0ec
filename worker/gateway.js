// The way of a request that passes: to the upstream and back. WebAssembly has decided where it goes and what it holds.
import { logError } from "./tell.js";

/**
 * The time for which a lease is renewed while the answer has not begun. The runtime does not notice that a client has closed
 * its connection in an orderly way until it writes something to that client.
 */
const LONGEST_WAIT_MS = 600_000;

/** Headers that concern one connection (RFC 9110 §7.6.1). */
const OF_A_CONNECTION = [
  "connection",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
];

/** Headers that the Worker itself writes, or leaves out because they could contradict these or the path. */
const OF_THE_WORKER = ["forwarded", "host", "upgrade", "x-original-url", "x-real-ip", "x-rewrite-url"];

/**
 * Sends a request to its upstream and returns the answer. `passed` is the text of `Isolate.finish`. `hold` renews or
 * releases a lease, and `failed` returns the answer if the upstream gives none.
 */
export async function forward(request, passed, context, hold, failed) {
  const end = passed.indexOf("\n\n");
  const [, ...added] = passed.slice(0, end).split("\n");
  const [url, client, renewEvery, ...lease] = passed.slice(end + 2).split("\n");
  const held = renewEvery === undefined ? undefined : holding(Number(renewEvery), lease, hold);
  const left = new AbortController(); // the runtime does not hand its own signal on
  request.signal.addEventListener("abort", () => left.abort());
  const log = (what, error) => left.signal.aborted || logError(what, error); // nobody misses a client that left
  try {
    const answer = await fetch(outgoing(request, url, client), { signal: left.signal });
    held?.answered();
    const response = released(answer, context, held?.release, log);
    dropOfAConnection(response.headers);
    for (let at = 0; at < added.length; at += 2) response.headers.append(added[at], added[at + 1]);
    return response;
  } catch (error) {
    log("upstream", error);
    if (held !== undefined) context.waitUntil(held.release());
    return failed();
  }
}

/** The request for the upstream. The Worker itself writes the headers about the client and its connection. */
function outgoing(request, url, client) {
  const headers = new Headers(request.headers);
  const { host, protocol } = new URL(request.url);
  const upgrade = isWebSocket(request) ? "websocket" : undefined;
  dropOfAConnection(headers);
  for (const name of [...headers.keys()]) {
    const read = name.replaceAll("_", "-"); // as CGI and WSGI read it
    const isDropped = [...OF_A_CONNECTION, ...OF_THE_WORKER].includes(read) || read.startsWith("x-forwarded-");
    if (isDropped) headers.delete(name);
  }
  headers.set("x-forwarded-host", host);
  headers.set("x-forwarded-proto", protocol.slice(0, -1));
  if (client !== "") for (const name of ["x-forwarded-for", "x-real-ip"]) headers.set(name, client);
  if (upgrade !== undefined) headers.set("upgrade", upgrade);
  return new Request(url === "" ? request : new Request(url, request), { headers, redirect: "manual" });
}

/** With `Upgrade` the runtime sends a `GET` without a body, whatever the request is. So no other request may keep it. */
const isWebSocket = ({ method, body, headers }) =>
  method === "GET" && body === null && headers.get("upgrade")?.toLowerCase() === "websocket";

function dropOfAConnection(headers) {
  const named = (headers.get("connection") ?? "").split(",").map((name) => name.trim());
  for (const name of [...named, ...OF_A_CONNECTION]) if (/^[\w!#$%&'*+.^`|~-]+$/.test(name)) headers.delete(name);
}

/** The answer, after whose end the lease is released. Without a lease the runtime carries the bytes alone. */
function released(answer, context, release, log) {
  if (answer.webSocket) {
    const headers = answer.headers;
    const webSocket = release === undefined ? answer.webSocket : coupled(answer.webSocket, context, release);
    return new Response(null, { status: 101, headers, webSocket });
  }
  if (release === undefined) return new Response(answer.body, answer);
  if (answer.body === null) {
    context.waitUntil(release());
    return new Response(null, answer);
  }
  const { readable, writable } = streamLike(answer);
  const ended = answer.body.pipeTo(writable).catch((error) => log("upstream: the answer broke off", error));
  context.waitUntil(ended.then(release));
  return new Response(readable, answer);
}

/** A stream for a body as long as the answer's, if its length is known. The runtime encodes a coded body anew. */
function streamLike({ headers }) {
  const length = headers.get("content-length");
  return length === null || headers.has("content-encoding")
    ? new IdentityTransformStream()
    : new FixedLengthStream(Number(length));
}

/** The client's end of a connection whose other end is the upstream. */
function coupled(upstream, context, release) {
  const [client, server] = Object.values(new WebSocketPair());
  const closed = Promise.race([relay(server, upstream), relay(upstream, server)]);
  context.waitUntil(closed.then(release));
  upstream.accept();
  server.accept();
  return client;
}

/** Sends the messages of one end to the other until the first end has closed. */
function relay(from, to) {
  from.binaryType = "arraybuffer";
  return new Promise((closed) => {
    const close = (code, reason) => {
      closed();
      try {
        // some codes only say that none was sent
        if (code === 1005) to.close();
        else to.close(code === 1006 || code === 1015 ? 1011 : code, reason);
      } catch {
        // the other end has closed before
      }
    };
    from.addEventListener("message", ({ data }) => {
      try {
        to.send(data);
      } catch {
        // the other end has closed, which its own event tells
      }
    });
    from.addEventListener("close", ({ code, reason }) => close(code, reason));
    from.addEventListener("error", () => close(1011, ""));
  });
}

/** Renews a lease until `release` is called. Until `answered` is called, it does so for a bounded time. */
function holding(renewEvery, lease, hold) {
  let timer;
  let renewsUntil = Date.now() + LONGEST_WAIT_MS;
  const renewLater = () => {
    timer = setTimeout(async () => {
      renewLater();
      if (Date.now() < renewsUntil) await hold(true, lease);
    }, renewEvery);
  };
  renewLater();
  const answered = () => (renewsUntil = Infinity);
  const release = async () => {
    if (timer === undefined) return;
    clearTimeout(timer);
    timer = undefined;
    await hold(false, lease);
  };
  return { answered, release };
}
