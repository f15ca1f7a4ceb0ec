// The events and errors that the Worker tells about itself.

let loggedAt = -Infinity;
let left = 0;

/** Logs at most one error a second, because in an outage every request has one, and counts the others. */
export function logError(what, error) {
  const now = Date.now();
  if (Math.abs(now - loggedAt) < 1_000) {
    left += 1;
    return;
  }
  console.error(what, error, ...(left > 0 ? [`; ${left} more since the last line`] : []));
  [loggedAt, left] = [now, 0];
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
    logError("the events could not be written:", error);
  }
}
