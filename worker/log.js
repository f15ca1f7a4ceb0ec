// The log of errors. WebAssembly writes into it too, and may end, but the bound on its lines holds.

let loggedAt = -Infinity;
let errors = 0;

/**
 * Logs an error and its cause in one line. At most one line a second is written, because in an outage every request has an
 * error, and the next line counts the others. The host does the same by `http::Log`.
 */
export function logError(what, cause) {
  const now = Date.now();
  if (Math.abs(now - loggedAt) < 1_000) {
    errors += 1;
    return;
  }
  const line = cause === undefined ? what : `${what}: ${cause}`;
  const rest = errors === 0 ? "" : `; ${errors} more error${errors === 1 ? "" : "s"} since the last line`;
  console.error(line.replaceAll(/\s+/g, " ") + rest);
  [loggedAt, errors] = [now, 0];
}
