// Requests and responses of the Fetch API.
import { soon } from "./core.js";

/** @type {(request: Request) => import("./limiting.js").Facts} */
export function fetchFacts({ method, url, headers }) {
  return { method, header: (name) => headers.get(name) ?? undefined, query: new URL(url).search.slice(1) };
}

/**
 * Responds, and releases the lease or commits the reservation once the body of the response has been read or the client is gone.
 *
 * @type {(request: Request, respond: () => Promise<Response>, held: import("./limiting.js").Held) => Promise<Response>}
 */
export async function holdUntilRead(request, respond, held) {
  const left = () => held.done(1);
  request.signal.addEventListener("abort", left, { once: true });
  if (request.signal.aborted) left();
  let response;
  try {
    response = await respond();
  } catch (error) {
    held.done(2);
    throw error;
  }
  const { headers } = response;
  const reads = held.meter?.answered(response.status, (name) => headers.get(name));
  if (response.body === null || request.method === "HEAD") {
    held.done(0); // nobody reads a body
    return response;
  }
  const reader = response.body.getReader();
  const body = new ReadableStream({
    async pull(controller) {
      held.renewUntil = soon();
      try {
        const { done: isEnd, value } = await reader.read();
        if (!isEnd && !ArrayBuffer.isView(value)) throw new TypeError(`expected bytes in the body of a response, found a ${typeof value}`);
        if (!isEnd) {
          if (reads) held.meter?.push(value);
          return controller.enqueue(value);
        }
        controller.close();
        held.done(0);
      } catch (error) {
        controller.error(error);
        held.done(1);
      }
    },
    cancel(reason) {
      left();
      return reader.cancel(reason);
    },
  }, { highWaterMark: 0 });
  return new Response(body, response);
}
