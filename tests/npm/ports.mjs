// Ports for servers that cannot choose their own, or that start again on the same one.

const FIRST = Math.floor(10_000 * Math.random());
let count = 0;

/**
 * Calls `start` with a port, and with another one if it fails, because another process may have the port. It is below those that Linux
 * gives to connections, none of which then has it when a server starts again. So is the port 10,000 higher, where a node of a Redis
 * Cluster listens for others.
 */
export async function onPort(start) {
  for (let failures = 0; ; failures++) {
    try {
      return await start(11_000 + (FIRST + count++) % 10_000); // this process gets it once
    } catch (error) {
      if (failures === 5) throw error;
    }
  }
}
