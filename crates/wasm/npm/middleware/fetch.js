// Handlers that take a `Request` and return a `Response`.
import { addHeaders, limiting, soon } from "./core.js";

export { MemoryStore } from "./store.js";

/** The handler behind a limiter. A request has no address by itself, so `options.ip` must say where it is. */
export function rateLimit(limiter, handler, options) {
  const limit = limiting(limiter, options, fetchFacts);
  return async (request, ...rest) => {
    const { headers, refusal, held } = await limit(request, ...rest);
    if (refusal !== undefined) return new Response(refusal.body, { status: refusal.status, headers });
    const respond = async () => withHeaders(await handler(request, ...rest), headers);
    return held === undefined ? respond() : holdUntilRead(request, respond, held);
  };
}

export default rateLimit;

export function fetchFacts({ url, headers }) {
  return { header: (name) => headers.get(name) ?? undefined, query: new URL(url).search.slice(1) };
}

function withHeaders(response, headers) {
  if (headers.length === 0) return response;
  const changed = new Response(response.body, response); // the headers of a response may be immutable
  const append = (name, value) => changed.headers.append(name, value);
  addHeaders(headers, append, (name, value) => changed.headers.set(name, value));
  return changed;
}

/** Responds, and releases the lease once the body of the response has been read or the client is gone. */
export async function holdUntilRead(request, respond, held) {
  const done = () => held.done();
  request.signal.addEventListener("abort", done, { once: true });
  if (request.signal.aborted) done();
  let response;
  try {
    response = await respond();
  } catch (error) {
    done();
    throw error;
  }
  if (response.body === null || request.method === "HEAD") {
    done(); // nobody reads a body
    return response;
  }
  const reader = response.body.getReader();
  const body = new ReadableStream({
    async pull(controller) {
      held.renewUntil = soon();
      try {
        const { done: isEnd, value } = await reader.read();
        if (!isEnd) return controller.enqueue(value);
        controller.close();
      } catch (error) {
        controller.error(error);
      }
      done();
    },
    cancel(reason) {
      done();
      return reader.cancel(reason);
    },
  }, { highWaterMark: 0 });
  return new Response(body, response);
}
