//! WebSockets end with the instance of WebAssembly that carries their messages.

use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast as _, JsValue};

#[wasm_bindgen(raw_module = "../recovery.js")]
extern "C" {
    /// What is called when WebAssembly has ended.
    #[wasm_bindgen(thread_local_v2, js_name = whenEnded)]
    static WHEN_ENDED: Calls;
}

#[wasm_bindgen]
extern "C" {
    /// A set of functions.
    type Calls;

    #[wasm_bindgen(method)]
    fn add(this: &Calls, call: &JsValue);

    #[wasm_bindgen(method)]
    fn delete(this: &Calls, call: &JsValue);

    /// A promise, and the function that settles it.
    type Resolvers;

    #[wasm_bindgen(js_namespace = Promise, js_name = withResolvers)]
    fn with_resolvers() -> Resolvers;

    #[wasm_bindgen(method, getter)]
    fn resolve(this: &Resolvers) -> JsValue;

    #[wasm_bindgen(method, getter)]
    fn promise(this: &Resolvers) -> End;

    /// A promise, for functions of JavaScript: those of WebAssembly end with it.
    type End;

    #[wasm_bindgen(method)]
    fn then(this: &End, call: &Close) -> End;

    #[wasm_bindgen(method)]
    fn catch(this: &End, call: &JsValue) -> End;

    /// A WebSocket, for its method.
    type Socket;

    #[wasm_bindgen(method, getter)]
    fn close(this: &Socket) -> Close;

    type Close;

    #[wasm_bindgen(method)]
    fn bind(this: &Close, socket: &JsValue, code: u16, reason: &str) -> Close;
}

/// Closes a WebSocket, whose messages WebAssembly carries, if WebAssembly ends before this is dropped.
pub(crate) struct ClosedAtEnd {
    ended: JsValue,
}

impl ClosedAtEnd {
    /// By a promise, because the runtime lets only the request that has opened a WebSocket close it.
    pub(crate) fn new(socket: &JsValue) -> Self {
        let close = socket.unchecked_ref::<Socket>().close().bind(socket, 1011, "");
        let end = with_resolvers();
        let ended = end.resolve();
        end.promise().then(&close).catch(&ended); // it may have closed before
        WHEN_ENDED.with(|all| all.add(&ended));
        Self { ended }
    }
}

impl Drop for ClosedAtEnd {
    fn drop(&mut self) {
        WHEN_ENDED.with(|all| all.delete(&self.ended));
    }
}
