// The objects that keep the states of keys, for the Worker and for the limiter of `tidegate/durable-objects`.
import { DurableObject } from "cloudflare:workers";
import { Owner } from "./build/index.js";
import { instance, outlive, recover } from "./recovery.js";

/**
 * The class of the objects. `learn` reads the policies that the questions need, and returns a promise. It gets the questions, the bindings,
 * and the policy that came with the questions, if one did.
 */
export const keysBy = (learn) => class Keys extends DurableObject {
  owner;
  instance = instance;

  /** Answers questions of an isolate. Only WebAssembly reads the questions and the replies. */
  ask(questions, policy) {
    const answer = () => this.#use((owner) => owner.ask(questions, Date.now()));
    return answer() ?? learn(questions, this.env, policy).then(answer); // without an answer, policies must be read first
  }

  /** Deletes expired states. */
  alarm() {
    return outlive(() => this.#use((owner) => owner.ring(Date.now())));
  }

  #use(call) {
    if (this.instance !== instance) [this.owner, this.instance] = [undefined, instance];
    try {
      this.owner ??= new Owner(this.ctx, this.env);
      return call(this.owner);
    } catch (error) {
      recover(error, this.instance);
      this.owner = undefined; // what is not stored is unknown
      throw error;
    }
  }
};
