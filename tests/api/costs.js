// The Worker, which counts what Cloudflare bills: `/costs/count` returns it since the last time, once nothing is under way that an
// object does after its answer, such as setting its alarm.
import worker, { Keys as Real, Policies } from "./worker/index.js";

const nothing = () => ({ requests: 0, calls: 0, rowsRead: 0, rowsWritten: 0, alarms: 0 });
let counts = nothing();
let pending = 0;

export { Policies };

export class Keys extends Real {
  constructor(state, env) {
    super(state, env);
    const { storage } = state;
    const waitUntil = state.waitUntil.bind(state);
    state.waitUntil = (promise) => {
      pending += 1;
      waitUntil(promise.finally(() => (pending -= 1)));
    };
    const setAlarm = storage.setAlarm.bind(storage);
    storage.setAlarm = (...alarm) => {
      counts.alarms += 1;
      return setAlarm(...alarm);
    };
    const { sql } = storage;
    const counted = {
      exec(...statement) {
        const cursor = sql.exec(...statement);
        const rows = cursor.toArray();
        counts.rowsRead += cursor.rowsRead;
        counts.rowsWritten += cursor.rowsWritten;
        return { toArray: () => rows };
      },
    };
    Object.defineProperty(storage, "sql", { value: counted });
  }

  ask(...question) {
    counts.calls += 1;
    return super.ask(...question);
  }
}

export default {
  fetch(request, env, context) {
    if (new URL(request.url).pathname === "/costs/count") {
      if (pending > 0) return Response.json({ pending });
      const counted = counts;
      counts = nothing();
      return Response.json(counted);
    }
    counts.requests += 1;
    return worker.fetch(request, env, context);
  },
};
