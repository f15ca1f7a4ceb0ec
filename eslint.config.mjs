// Finds mathematics and protocol in the JavaScript that the npm package and the Worker ship: WebAssembly decides, and says what to
// send. `cargo xtask test lint` runs it. Each exception is below, with its reason.

/** The numbers of a decision or of a limit. JavaScript hands them on: it neither computes with them nor compares them. */
const NUMBERS = "(limit|remaining|(retry|reset)(AfterUs|_after_us)|atUs|capacity|rate|period|used|granted|charged|reserved)";
const EQUALS = "/^([!=]==?|=|in|instanceof)$/";

const decisions = [`Identifier[name=/^${NUMBERS}$/]`, `MemberExpression[property.name=/^${NUMBERS}$/]`].flatMap((number) => [
  `:matches(BinaryExpression, AssignmentExpression)[operator!=${EQUALS}] > ${number}`,
  `CallExpression[callee.object.name='Math'] > ${number}`,
]);

/** Whole steps by a literal, as in `place + 1`, count or point at something. */
const arithmetic = [
  ":matches(BinaryExpression, AssignmentExpression)[operator=/^([*\\u002f%&|^]|\\*\\*|<<|>>>?)=?$/]",
  ":matches(BinaryExpression, AssignmentExpression)[operator=/^-=?$/]:not([right.type='Literal'])",
  "UnaryExpression[operator='~']",
  "MemberExpression[object.name='Math']",
];

/** Commands and scripts of Redis, and the names of what is stored. */
const WORDS = "/\\b(EVAL(SHA)?|HM?[GS]ET|INCR(BY)?|PEXPIRE|PTTL|KEEPTTL)\\b|redis\\.p?call|tidegate:\\{/";
const protocol = [`Literal[value=${WORDS}]`, `TemplateElement[value.raw=${WORDS}]`];

const RULES = {
  decisions: [decisions, "hand on what WebAssembly has decided: it computes and compares"],
  arithmetic: [arithmetic, "let WebAssembly compute, or give a reason in eslint.config.mjs"],
  protocol: [protocol, "let WebAssembly say what to send"],
};

/** The rules that files are free of. */
const EXCEPTIONS = [
  [["decode.js", "fields.js"], ["arithmetic"], "the texts that WebAssembly hands over, and WebAssembly itself as text"],
  [["answer.js", "far/desk.js"], ["arithmetic"], "the bits and numbers that WebAssembly hands over; the units of a grant that are not given back yet"],
  [["remote/answer.js", "reporter.js"], ["arithmetic"], "a factor in units of 2^-32"],
  [["limiter.js"], ["arithmetic"], "whether a key is ASCII, and the memory for a dump"],
  [["grant.js"], ["arithmetic"], "the units of a grant that are not given back yet"],
  [["span.js", "time.js"], ["arithmetic"], "texts and clocks in microseconds, microseconds in the milliseconds of timers"],
  [["running.js", "remote/limiter.js", "remote/server.js"], ["arithmetic"], "the milliseconds until a deadline, or until a lease has ended"],
  [["waiting.js"], ["arithmetic", "decisions"], "when a request that waits has its turn, with a random share"],
  [["middleware/limiting.js"], ["arithmetic"], "the timer of a lease; the least of what several limiters have left"],
  [["remote/batch.js"], ["arithmetic"], "the bytes of a batch, and its halves"],
  [["redis/client.js"], ["protocol"], "which function of an HTTP client takes a call of a script"],
  [["caller/caller.js"], ["arithmetic", "decisions"], "an example, which words an answer of its own"],
].map(([files, free, reason]) => ({ files: files.map((file) => `crates/wasm/npm/${file}`), free, reason }));

EXCEPTIONS.push(
  { files: ["crates/wasm/npm/dropin/**"], free: ["arithmetic", "decisions"], reason: "counts as other libraries do: ARCHITECTURE.md lists what it computes" },
  { files: ["worker/log.js"], free: ["arithmetic"], reason: "one line a second" },
  { files: ["worker/worker.js"], free: ["arithmetic"], reason: "the bits of a step that WebAssembly hands over; how long a request took, for its event" },
);

/** @param {string[]} free */
const ruleOf = (free) => ["error", ...Object.entries(RULES).flatMap(([name, [selectors, message]]) =>
  (free.includes(name) ? [] : selectors.map((selector) => ({ selector, message }))))];

export default [
  { ignores: ["**/dist/", "**/build/", "docs/", "target/", "tests/"] },
  {
    files: ["crates/wasm/npm/**/*.js", "worker/*.js"],
    linterOptions: { noInlineConfig: true },
    rules: { "no-restricted-syntax": ruleOf([]) },
  },
  ...EXCEPTIONS.map(({ files, free }) => ({ files, rules: { "no-restricted-syntax": ruleOf(free) } })),
];
