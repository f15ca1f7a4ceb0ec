//! WebSockets through the gateway: the client's end, coupled with the upstream's.

use std::future::Future;
use std::rc::Rc;

use js_sys::futures::JsFuture;
use js_sys::{Array, ArrayBuffer, Promise};
use wasm_bindgen::closure::Closure;
use wasm_bindgen::convert::FromWasmAbi;
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast as _, JsValue};
use web_sys::{BinaryType, CloseEvent, MessageEvent};
use worker::{Context, WebSocket, WebSocketPair};

/// The codes that only say how a connection has ended (RFC 6455 §7.4.1), and the one that stands for a fault.
const NO_CODE: u16 = 1005;
const BROKEN: [u16; 2] = [1006, 1015];
const FAULT: u16 = 1011;

/// The client's end of a connection whose other end is the upstream. `then` runs once it has closed.
pub(crate) fn coupled(
    upstream: WebSocket,
    context: &Context,
    then: impl Future<Output = ()> + 'static,
) -> worker::Result<WebSocket> {
    let WebSocketPair { client, server } = WebSocketPair::new()?;
    let closed = Promise::race(&Array::of2(&relay(&server, &upstream), &relay(&upstream, &server)));
    let ends: [&web_sys::WebSocket; 2] = [server.as_ref(), upstream.as_ref()];
    let ends = ends.map(|end| ClosedAtEnd::new(end));
    context.wait_until(async move {
        let _ = JsFuture::from(closed).await; // it is never rejected
        drop(ends);
        then.await;
    });
    upstream.accept()?;
    server.accept()?;
    Ok(client)
}

/// Sends the messages of one end to the other. The promise is `true` when the first end has closed.
fn relay(from: &WebSocket, to: &WebSocket) -> Promise {
    from.as_ref().set_binary_type(BinaryType::Arraybuffer);
    Promise::new(&mut |closed, _| {
        let target = to.clone();
        listen(from, "message", move |event: MessageEvent| send(&target, &event.data()));
        let target = to.clone();
        let close = Rc::new(move |code: u16, reason: &str| {
            let _ = closed.call1(&JsValue::UNDEFINED, &JsValue::TRUE);
            // the other end may have closed before
            let _ = match code {
                NO_CODE => target.close::<&str>(None, None),
                code if BROKEN.contains(&code) => target.close(Some(FAULT), Some(reason)),
                code => target.close(Some(code), Some(reason)),
            };
        });
        let broken = Rc::clone(&close);
        listen(from, "close", move |event: CloseEvent| close(event.code(), &event.reason()));
        listen(from, "error", move |_: JsValue| broken(FAULT, ""));
    })
}

/// Sends a message on, as text or as bytes. If the other end has closed, its own event says so.
fn send(to: &WebSocket, data: &JsValue) {
    let to: &web_sys::WebSocket = to.as_ref();
    let _ = match data.as_string() {
        Some(text) => to.send_with_str(&text),
        None => to.send_with_array_buffer(data.unchecked_ref::<ArrayBuffer>()),
    };
}

/// Calls a function for each event. The socket owns it.
fn listen<E: FromWasmAbi + 'static>(
    socket: &WebSocket,
    event: &str,
    call: impl FnMut(E) + 'static,
) {
    let call = Closure::<dyn FnMut(E)>::new(call).into_js_value();
    let _ = socket.as_ref().add_event_listener_with_callback(event, call.unchecked_ref());
}

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
