// The objects that keep the states of keys, for the Worker and for the limiter of `tidegate/durable-objects`.
import { DurableObject } from "cloudflare:workers";
import { Owner } from "./build/index.js";
import { instance, outlive, recover } from "./recovery.js";

/**
 * The class of the objects. `learn` reads the policies that the questions need. It gets the questions, the bindings, and the policy that came
 * with the questions, if one did.
 */
export const keysBy = (learn) => class Keys extends DurableObject {
  constructor(state, env) {
    super(state, env);
    this.owner = undefined;
    this.instance = instance;
  }

  /** Answers questions of an isolate. Only WebAssembly reads the questions and the replies. */
  ask(questions, policy) {
    return this.#use((owner) => owner.ask(questions, Date.now())) ?? this.#learn(questions, policy);
  }

  /** Answers by policies that must be read first. */
  async #learn(questions, policy) {
    await learn(questions, this.env, policy);
    return this.#use((owner) => owner.ask(questions, Date.now()));
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
