// The vectors of tests/vectors. The policy of a vector has the name of the file.
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const folder = fileURLToPath(new URL("../vectors/", import.meta.url));

export function readVectors() {
  const files = readdirSync(folder).filter((name) => name.endsWith(".json")).sort();
  return Object.fromEntries(files.map((file) => [file.replace(".json", ""), JSON.parse(readFileSync(folder + file, "utf8"))]));
}
