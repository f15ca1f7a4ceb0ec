// Lets WebAssembly trap where a test says: `globalThis.trap` is the name of the export whose next call does. Imported before the package.
const { Instance, RuntimeError } = WebAssembly;

WebAssembly.Instance = function Trapping(module, imports) {
  const { exports } = new Instance(module, imports);
  const wrapped = Object.entries(exports).map(([name, own]) => {
    if (typeof own !== "function" || !/^(objects|owner|nativeauthority)_/.test(name)) return [name, own];
    return [name, (...given) => {
      if (globalThis.trap !== name) return own(...given);
      globalThis.trap = undefined;
      throw new RuntimeError("unreachable");
    }];
  });
  return { exports: Object.fromEntries(wrapped) };
};
