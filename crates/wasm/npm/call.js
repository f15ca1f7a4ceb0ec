// Reads the options of the calls about keys. Which options a call has, and what each of them may be, stands in lists below.
import { coded } from "./errors.js";
import { policyJson, requireNow, requirePlain, requireText, requireType, requireWhole, unknownField, wrongType } from "./input.js";
import { clock } from "./time.js";

/** @import { ErrorCode } from "./index.js" */
/** @import { Invalid } from "./input.js" */
/** @typedef {{ check: (value: any, field: Field) => void, code: ErrorCode, least?: any, most?: any, required?: boolean, isUnnamed?: boolean }} FieldRule an unnamed field is no expected one */
/** @typedef {FieldRule & { name: string }} Field how a field of an argument is checked */
/** @typedef {ReturnType<typeof fieldList>} FieldList the fields that an argument may have */

/** The fields of the lists below that few calls have. */
class Fields {
  /** @type {string | undefined} */
  class;
  /** @type {string | undefined} */
  lease;
  /** @type {number | undefined} */
  signalPpm;
  /** @type {number | undefined} */
  draw;
  /** @type {number | undefined} */
  count;
  /** @type {any} */
  wants;
  /** @type {number | undefined} */
  left;
  /** @type {any} */
  grantedAtUs;
  /** @type {any} */
  reserved;
  /** @type {any} */
  actual;
  /** @type {number | undefined} */
  offeredAtUs;
  /** @type {any} */
  admitted;
  /** @type {any} */
  suppressed;
  /** @type {string | undefined} */
  id;
  /** @type {number | string | undefined} */
  timeToLive;
  /** @type {string | undefined} */
  idempotencyKey;
}

export const NO_FIELDS = new Fields();

/** The options of a call. */
export class Call {
  /** @type {number | undefined} */
  cost;
  /** @type {any} a number, once `callOptions` has returned */
  now;
  /** Whether the caller gave the time. */
  isTimed = false;
  fields = NO_FIELDS;
  /**
   * The limits of the call as a policy.
   *
   * @type {string | undefined}
   */
  limits;
  /** @type {import("./index.js").Signal | undefined} */
  signal;
  /** @type {number | undefined} */
  jitter;
}

/**
 * Reads the options of a call, whose fields are those of one of the lists below.
 *
 * @type {(argument: string, given: unknown, fields: FieldList) => Call}
 */
export function callOptions(argument, given, fields) {
  const call = new Call();
  if (given !== undefined || fields.required.length > 0) {
    if (typeof given !== "object" || given === null) throw wrongType(argument, "INVALID_REQUEST", given, "an object");
    requirePlain(argument, "INVALID_REQUEST", given);
    const names = Object.keys(given);
    for (let place = 0; place < names.length; place++) readField(call, argument, given, names[place], fields);
  }
  for (let place = 0; place < fields.required.length; place++) {
    const field = fields.required[place];
    if (/** @type {Record<string, any>} */ (call.fields)[field.name] === undefined) field.check(undefined, field);
  }
  call.isTimed = call.now !== undefined;
  if (!call.isTimed) call.now = clock();
  return call;
}

/**
 * Most calls have a cost or a time. They are read by name, because a name in a variable takes V8 longer.
 *
 * @type {(call: Call, argument: string, given: any, name: string, fields: FieldList) => void}
 */
function readField(call, argument, given, name, fields) {
  if (name === "cost" && fields.cost !== undefined) {
    const { cost } = given;
    if (cost !== undefined) isWhole(cost, fields.cost);
    call.cost = cost;
  } else if (name === "now" && fields.now !== undefined) {
    const { now } = given;
    if (now !== undefined) requireNow(now);
    call.now = now;
  } else {
    readOther(call, argument, given, name, fields);
  }
}

/** @type {(call: Call, argument: string, given: any, name: string, fields: FieldList) => void} */
function readOther(call, argument, given, name, fields) {
  const field = fields.named.get(name);
  if (field === undefined) throw unknownField(argument, "INVALID_REQUEST", name, fields.names);
  const value = given[name];
  if (value === undefined) return;
  field.check(value, field);
  switch (name) {
    case "limits": call.limits = limitsText(value); break;
    case "signal": call.signal = value; break;
    case "jitter": call.jitter = value; break;
    default:
      if (call.fields === NO_FIELDS) call.fields = new Fields();
      /** @type {Record<string, any>} */ (call.fields)[name] = value;
  }
}

/** Limits of a call that were read before. */
export class ReadLimits {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
  }
}

/**
 * Limits of a call as a policy.
 *
 * @type {(limits: unknown) => string}
 */
function limitsText(limits) {
  if (limits instanceof ReadLimits) return limits.text;
  if (!Array.isArray(limits)) throw wrongType("limits", "INVALID_LIMITS", limits, "an array");
  return `{"limits":${policyJson(limits, invalidLimits, "limits", 0)}}`;
}

/** @type {FieldRule["check"]} */
const isText = (value, { name, code }) => requireText(name, code, value);
// checked here, because JSON cannot write NaN
/** @type {FieldRule["check"]} */
const isWhole = (value, { name, code, least, most }) => {
  requireType(name, code, value, "number");
  requireWhole(name, code, value, least, most);
};

/** @type {FieldRule} */
const TEXT = { check: isText, code: "INVALID_REQUEST" };
/** @type {FieldRule} */
const QUANTITY = { check: isWhole, code: "INVALID_REQUEST", least: 0, most: Number.MAX_SAFE_INTEGER };
/** @type {FieldRule} */
const NEEDED = { ...QUANTITY, required: true };
/** @type {FieldRule} */
const COST = { ...QUANTITY, code: "INVALID_COST" };
/** @type {FieldRule} */
const NOW = { check: requireNow, code: "INVALID_NOW" };
/** @type {any} it is checked where it is read: by `limitsText` or `spanUs` */
const ANY = { check() {} };
const LIMITS = ANY;
const EVERY = { now: NOW, limits: LIMITS };
const FIELDS = {
  class: TEXT,
  lease: TEXT,
  signalPpm: { ...QUANTITY, most: 1_000_000 },
  draw: { ...QUANTITY, most: 0xffff_ffff },
};
/** @type {FieldRule} */
export const SIGNAL = { check: isSignal, code: "INVALID_REQUEST" };
/** @type {FieldRule} */
const JITTER = { check: isShare, code: "INVALID_REQUEST" };

/**
 * In the place of `limits`, which only a limiter in memory takes, because it remembers them.
 *
 * @type {FieldRule}
 */
export const NO_LIMITS = {
  isUnnamed: true,
  code: "INVALID_REQUEST",
  check(_, { code }) {
    throw coded(code, "`limits`: expected no limits of a call, which need a `Limiter` in memory");
  },
};
/**
 * A time that only tests give.
 *
 * @type {FieldRule}
 */
export const UNNAMED_NOW = { ...NOW, isUnnamed: true };

/** The options of `check`. */
export const CHECK = fieldList({ cost: COST, ...EVERY });
/** The options of `decide`, `peek` and `explain`. */
export const REQUEST = fieldList({ cost: COST, ...FIELDS, ...EVERY });
/** The options of `acquire`: a cost of 0 acquires no lease. */
export const ACQUISITION = fieldList({ cost: { ...COST, least: 1 }, ...FIELDS, ...EVERY });
/** The options of `waitFor`, which goes by the clock. */
export const WAIT = fieldList({ cost: { ...COST, least: 1 }, ...FIELDS, limits: LIMITS, signal: SIGNAL, jitter: JITTER });
/** The options of `run`, which goes by the clock. */
export const RUN = fieldList({ cost: { ...COST, least: 1 }, ...FIELDS, limits: LIMITS });
/** What `reserve` takes: a cost of 0 reserves nothing. */
export const RESERVATION = fieldList({
  cost: { ...COST, least: 1 }, class: TEXT, id: TEXT, signalPpm: FIELDS.signalPpm, draw: FIELDS.draw, timeToLive: ANY, now: NOW,
});
/** The options of calls that have no others. */
export const OPTIONS = fieldList(EVERY);
/** The options of `renew`. */
export const RENEWAL = fieldList({ count: { ...QUANTITY, most: 0xffff_ffff }, ...EVERY });
/** What `budget` takes. */
export const BUDGET = fieldList({ wants: NEEDED, grantedAtUs: QUANTITY, left: QUANTITY, ...EVERY });
/** What `report` takes. */
export const REPORT = fieldList({ admitted: NEEDED, suppressed: NEEDED, offeredAtUs: QUANTITY, ...EVERY });
/** The options of calls about all keys. */
export const ONLY_NOW = fieldList({ now: NOW });

/**
 * A list without some fields, and with others.
 *
 * @type {(fields: FieldList, without: string[], others?: Record<string, FieldRule>) => FieldList}
 */
export function changed(fields, without, others = {}) {
  const kept = [...fields.named].filter(([name]) => !without.includes(name));
  return fieldList({ ...Object.fromEntries(kept), ...others });
}

/** @param {Record<string, FieldRule>} rules */
function fieldList(rules) {
  const list = Object.entries(rules).map(([name, rule]) => ({ name, ...rule }));
  const named = new Map(list.map((field) => [field.name, field]));
  const required = list.filter((field) => field.required);
  return { named, names: list.filter((field) => !field.isUnnamed).map(({ name }) => name), required, cost: named.get("cost"), now: named.get("now") };
}

/** @type {(signal: any) => void} */
function isSignal(signal) {
  const { aborted, addEventListener, removeEventListener } = signal ?? {}; // it may come from another realm
  if (typeof aborted === "boolean" && typeof addEventListener === "function" && typeof removeEventListener === "function") return;
  throw wrongType("signal", "INVALID_REQUEST", signal, "an AbortSignal");
}

/** @type {(jitter: any) => void} */
function isShare(jitter) {
  requireType("jitter", "INVALID_REQUEST", jitter, "number");
  if (jitter >= 0 && jitter <= 1) return;
  throw coded("INVALID_REQUEST", `\`jitter\`: expected a number from 0 to 1, found ${jitter}`);
}

/** @type {Invalid} */
const invalidLimits = (path, message) => coded("INVALID_LIMITS", `\`${path || "limits"}\`: ${message}`);
