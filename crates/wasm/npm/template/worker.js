// Tidegate with the policies of policies.toml.
import policies from "./policies.toml";
import { Keys, Tidegate, tidegate } from "tidegate/worker";

export { Keys, Tidegate };
export default tidegate(policies);
