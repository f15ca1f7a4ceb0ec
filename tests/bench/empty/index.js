// A Worker in Rust that does nothing.
import { answer, initSync } from "./build/index.js";
import module from "./build/index_bg.wasm";

initSync({ module });

export default {
  fetch: (request) => new Response(answer(request.url)),
};
