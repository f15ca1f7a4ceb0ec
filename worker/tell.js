// The events and errors that the Worker tells about itself.

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

/** Analytics Engine takes at most this many events of a request. */
const MOST_EVENTS = 25;

/** Writes an event for each policy and outcome of a request, after its response. */
export function tell(env, context, lines, begun) {
  if (lines !== "") context.waitUntil(write(env, lines.split("\n"), (Date.now() - begun) * 1_000));
}

async function write(env, lines, micros) {
  await scheduler.wait(1);
  try {
    for (let line = 0; line + 3 < lines.length && line < 4 * MOST_EVENTS; line += 4) {
      const [policy, outcome, checks, cost] = lines.slice(line, line + 4);
      const doubles = [Number(checks), Number(cost), micros];
      env.TIDEGATE_EVENTS.writeDataPoint({ indexes: [policy], blobs: [policy, outcome], doubles });
    }
  } catch (error) {
    logError("the events could not be written", error);
  }
}
