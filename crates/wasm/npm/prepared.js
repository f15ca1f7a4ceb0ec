// The options of middleware, checked against a policy.
import { caught } from "./errors.js";
import { middlewareOptions } from "./input.js";

/** @typedef {{ requireForm: (form: string) => void, takesReservations: () => boolean, metering: (text: string) => unknown, requireUndo: (reserves: boolean) => void }} Native */

/**
 * The options of middleware, with `metering` if the true cost of requests is committed.
 *
 * @type {(native: Native, options: unknown, among: { isLast: boolean } | undefined) => Record<string, any>}
 */
export function prepared(native, options, among) {
  const read = middlewareOptions(options, among);
  caught(() => native.requireForm(read.headers ?? ""));
  const { metering } = read;
  const isMetered = metering !== undefined && (among === undefined || native.takesReservations());
  read.metering = isMetered ? caught(() => native.metering(metering)) : undefined;
  if (among?.isLast === false) caught(() => native.requireUndo(isMetered));
  return read;
}
