// The policy file that callers have put over the deployed one. An object keeps its revisions, and isolates ask for the
// one in force now and then.
import { Isolate, Keeper as Revisions } from "./build/index.js";
import { logError } from "./tell.js";

/** The name of the object that keeps the revisions. Names of policies are not empty, so no key belongs to it. */
const KEEPER = ":policies";

/** How long an isolate goes on with an revision after it asked for the one in force. */
const DELAY_MS = 5_000;

/** How long a request waits for the revision in force. After that the known revision stays in force for a while. */
const DEADLINE_MS = 2_000;

const keeper = (env) => env.KEYS.getByName(KEEPER);

/** The revision in force, as an isolate knows it. */
export class InForce {
  constructor(env, deployed) {
    this.changes = Isolate.policies_change(Date.now());
    this.delay = Number(env.TIDEGATE_POLICIES_DELAY_MS ?? DELAY_MS);
    this.known = Isolate.tag(Date.now());
    this.deployed = this.known.split("\n")[1];
    this.file = deployed;
    this.askedAt = -Infinity;
    this.begunAt = -Infinity;
    this.learnTraits();
  }

  learnTraits() {
    this.readsCountry = Isolate.reads_country(Date.now());
    this.sharesCalls = Isolate.shares_calls(Date.now());
    /** Whether each body that comes is for a call, so that a request needs to begin only once. */
    this.readsBodiesFirst = !Isolate.has_routes(Date.now());
  }

  /** A promise if a request must wait. Under load no request waits, because the isolate asks half the delay earlier. */
  refresh(env, context) {
    if (!this.changes) return undefined;
    const now = Date.now();
    const age = now - this.askedAt;
    if (age >= this.delay) return this.ask(env);
    if (age >= this.delay / 2 && now - this.begunAt >= this.delay / 2) {
      this.begunAt = now;
      context.waitUntil(this.ask(env));
    }
    return undefined;
  }

  /** Asks for the revision in force. A failure leaves the known one in force. */
  async ask(env) {
    const asked = Date.now();
    try {
      const late = scheduler.wait(DEADLINE_MS).then(() => {
        throw new Error(`no answer within ${DEADLINE_MS} ms`);
      });
      const told = await Promise.race([keeper(env).inForce(this.deployed, this.known), late]);
      if (told !== undefined) this.put(told);
    } catch (error) {
      logError("the policies in force are not known, so the earlier ones stay in force", error);
    }
    this.askedAt = Math.max(this.askedAt, asked);
  }

  put(told) {
    this.known = told.split("\n", 2).join("\n");
    const wrong = Isolate.put_in_force(told, Date.now());
    this.learnTraits();
    if (wrong !== undefined) logError("the policies that were put in force are ignored", wrong);
  }

  /** Lets the object answer a call about the revisions. Returns the text of the response. */
  async handle(env, call) {
    const text = await keeper(env).handlePolicies(call, this.file);
    await this.ask(env);
    return text;
  }
}

/** The calls of the object of the revisions. */
export class Keeper {
  constructor(kv) {
    this.kv = kv;
  }

  inForce(deployed, known) {
    return Revisions.in_force(this.kv.get("revisions"), deployed, known);
  }

  file(hash) {
    return Revisions.file(this.kv.get("revisions"), hash);
  }

  handle(call, deployed) {
    const handled = Revisions.handle(this.kv.get("revisions"), call, deployed, Date.now());
    const stored = handled.stored();
    if (stored !== undefined) this.kv.put("revisions", stored);
    const response = handled.response();
    handled.free();
    return response;
  }
}

/** Makes sure that the objects of this isolate can answer by an revision. */
export async function learn(env, revision) {
  const file = await keeper(env).policyFile(revision);
  const wrong = file === undefined ? "no such file is kept" : Isolate.learn(revision, file);
  if (wrong !== undefined) throw new Error(`the policies of a question: ${wrong}`);
}
