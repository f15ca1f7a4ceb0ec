// Tidegate with the policies of policies.toml.
import policies from "./policies.toml";
import { Keys, Policies, Tidegate, tidegate } from "tidegate/worker";

export { Keys, Policies, Tidegate };
export default tidegate(policies);
