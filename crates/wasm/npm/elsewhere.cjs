// What other runtimes get in the place of the entries for Cloudflare Workers. A CommonJS module is found by `import` and by `require`.
// The names are those that an `import` looks for before it runs this.
exports.default = exports.DurableLimiter = exports.Keys = exports.Policies = exports.Tidegate = exports.tidegate = undefined;
exports.ArgumentError = exports.FullError = exports.LimiterError = exports.PolicyError = undefined;
throw new Error(
  "`tidegate/durable-objects` and `tidegate/worker` need a Cloudflare Worker, as wrangler bundles it. " +
  "Elsewhere use `tidegate`, `tidegate/redis` or `tidegate/remote`",
);
