// The Worker in two isolates, and with faults of the object that adds up their lists:
// - A request with `x-isolate: second` is for the second isolate.
// - `/fault/arm?before` makes the next call of the object fail, and `/fault/arm?after` lets its answer be lost.
// - `/fault/hand` hands a text over to the object.
import worker, { Keys, Policies as Real } from "./worker/index.js";

export { Keys };

const armed = new Set();

export class Policies extends Real {
  async inForce(...asked) {
    if (armed.delete("before")) throw new Error("the object fails");
    const answer = await super.inForce(...asked);
    if (armed.delete("after")) throw new Error("the answer is lost");
    return answer;
  }
}

export default {
  async fetch(request, env, context) {
    if (env.SECOND !== undefined && request.headers.get("x-isolate") === "second") return env.SECOND.fetch(request);
    const { pathname, search } = new URL(request.url);
    switch (pathname) {
      case "/fault/arm":
        armed.add(search.slice(1));
        return new Response("armed");
      case "/fault/hand":
        try {
          return new Response(await env.POLICIES.getByName("policies").inForce("", "", await request.text(), true));
        } catch (error) {
          return new Response(error);
        }
    }
    return worker.fetch(request, env, context);
  },
};
