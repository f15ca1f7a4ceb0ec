// Shows the result of a project where it runs.
export function report(name, result) {
  const line = `${name}: ${result}`;
  if (typeof document === "undefined") console.log(line);
  else document.body.append(document.createElement("p"), line);
}
