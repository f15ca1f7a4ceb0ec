// The entry of the Worker with the policy file of this repository.
import { Keys, Policies, Tidegate, tidegate } from "./tidegate.js";
// a text module beside the compiled Worker, so editing it needs no build of Rust code
import policies from "../policies.toml";

export { Keys, Policies, Tidegate };
export default tidegate(policies);
