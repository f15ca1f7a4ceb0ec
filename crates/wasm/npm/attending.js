// Lets the requests of a Worker wait for their turn: each of them asks, and has timers, in its own context.

/** How often a request that waits says that it is still there. */
const EVERY_MS = 1_000;

/** @type {import("./waiting.js").Attend} */
export function attend(settled, tick) {
  /** @type {(() => void)[]} */
  const acts = [];
  let [isOver, ring] = [false, () => {}];
  const over = settled.then(() => true, () => true).then(() => {
    isOver = true;
  });
  const waits = async () => {
    while (!isOver) {
      /** @type {ReturnType<typeof setTimeout> | undefined} */
      let timer;
      /** @type {Promise<void>} */
      const rung = new Promise((resolve) => {
        ring = resolve;
        timer = setTimeout(resolve, acts.length > 0 ? 0 : EVERY_MS);
      });
      await Promise.race([rung, over]);
      clearTimeout(timer);
      if (isOver) return;
      tick();
      for (const act of acts.splice(0)) act();
    }
  };
  void waits();
  return (act) => {
    acts.push(act);
    ring();
  };
}
