// Requests and responses of the Fetch API.
import { soon } from "./core.js";

/** @type {(request: Request) => import("./core.js").Facts} */
export function fetchFacts({ url, headers }) {
  return { header: (name) => headers.get(name) ?? undefined, query: new URL(url).search.slice(1) };
}

/**
 * Responds, and releases the lease once the body of the response has been read or the client is gone.
 *
 * @type {(request: Request, respond: () => Promise<Response>, held: import("./core.js").Held) => Promise<Response>}
 */
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
        if (!isEnd && !ArrayBuffer.isView(value)) throw new TypeError(`expected bytes in the body of a response, found a ${typeof value}`);
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
