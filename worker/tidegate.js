// The exports of the npm package as `tidegate/worker`: the Worker, and its calls for other Workers.
import { WorkerEntrypoint } from "cloudflare:workers";
import { Isolate } from "./build/index.js";
import { handler } from "./worker.js";

export { Keys, Policies, tidegate } from "./worker.js";

/**
 * The decision API for a Worker whose service binding names this class. The binding itself is the permission, so its calls
 * need no token. They answer the JSON of the HTTP API, and throw the problem that HTTP would answer.
 */
export class Tidegate extends WorkerEntrypoint {
  /** The HTTP API. The request needs its token, because it may be one that a client has sent. */
  fetch(request) {
    return handler.fetch(request, this.env, this.ctx);
  }
}

for (const name of ["check", "peek", "acquire", "renew", "release", "reserve", "commit", "refund"]) {
  /** Makes the same exchange as over HTTP. */
  Tidegate.prototype[name] = async function (given) {
    const response = await handler.fetch(Isolate.rpc(name, given, this.env), this.env, this.ctx);
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.detail ?? answer.title);
    return answer;
  };
}
