//! The way of a request that passes: to its upstream and back. `tidegate_http` has decided where it goes and what it holds.

use js_sys::Function;
use js_sys::futures::JsFuture;
use tidegate_http::{Pass, Served, upstream_failed};
use wasm_bindgen::closure::Closure;
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast as _, JsError, JsValue};
use web_sys::{
    ReadableStream, Request, RequestInit, RequestRedirect, Response, ResponseInit, TransformStream,
    WorkerGlobalScope,
};
use worker::worker_sys::ext::ResponseExt as _;
use worker::worker_sys::{Context as JsContext, FixedLengthStream};
use worker::{AbortController, AbortSignal, Context, Headers, ResponseBuilder};

use crate::exchange::parts;
use crate::held::Held;
use crate::isolate::Isolate;
use crate::log::log_error;
use crate::node::{End, with};
use crate::sockets::coupled;

/// Headers that concern one connection (RFC 9110 §7.6.1).
const OF_A_CONNECTION: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
];

/// Headers that the Worker itself writes, or leaves out because they could contradict these or the path.
const OF_THE_WORKER: [&str; 6] =
    ["forwarded", "host", "upgrade", "x-original-url", "x-real-ip", "x-rewrite-url"];

#[wasm_bindgen]
extern "C" {
    /// A stream that changes nothing. Its length is not known.
    #[wasm_bindgen(extends = TransformStream)]
    type IdentityTransformStream;

    #[wasm_bindgen(constructor)]
    fn new() -> IdentityTransformStream;
}

#[wasm_bindgen]
impl Isolate {
    /// Sends the request of an exchange that passes to its upstream, and returns the answer, or the response in its place. `hold` renews or releases a lease, by whether it renews, policy, key and name.
    ///
    /// # Errors
    /// Throws an `Error` if the exchange does not pass.
    pub async fn forward(
        exchange: u32,
        request: Request,
        context: JsContext,
        hold: Function,
        now_ms: f64,
    ) -> Result<Response, JsValue> {
        let running = with(now_ms, |node, _, _| node.exchanges.remove(&exchange));
        let Some(End::Served(Served::Pass(pass))) = running.and_then(|running| running.end) else {
            return Err(JsError::new("the request does not pass").into());
        };
        let held = pass.lease.clone().map(|lease| Held::begin(lease, hold));
        let (context, signal) = (Context::new(context), left(&request));
        match send(&request, &pass, &signal).await {
            Ok(answer) => released(answer, &pass, &context, held, signal),
            Err(error) => {
                log(&signal, "upstream", &error);
                if let Some(held) = held {
                    context.wait_until(held.release());
                }
                failed(&request, &pass)
            }
        }
    }
}

/// The response to a request whose upstream did not answer.
fn failed(request: &Request, pass: &Pass) -> Result<Response, JsValue> {
    let accept = request.headers().get("accept")?;
    let response = upstream_failed(accept.as_deref(), &pass.own_fields);
    let (init, headers) = (ResponseInit::new(), web_sys::Headers::new()?);
    for (name, value) in &response.headers {
        headers.append(name, value)?;
    }
    init.set_status(response.status);
    init.set_headers(&headers);
    Response::new_with_opt_str_and_init(Some(&response.body), &init)
}

/// A signal that the client has left. The runtime does not hand its own signal on.
fn left(request: &Request) -> AbortSignal {
    let left = AbortController::default();
    let signal = left.signal();
    let abort = Closure::once_into_js(move || left.abort());
    let _ = request.signal().add_event_listener_with_callback("abort", abort.unchecked_ref());
    signal
}

/// Nobody misses a client that left.
fn log(signal: &AbortSignal, what: &str, error: &JsValue) {
    if !signal.aborted() {
        log_error(what, error);
    }
}

async fn send(request: &Request, pass: &Pass, signal: &AbortSignal) -> Result<Response, JsValue> {
    let scope: WorkerGlobalScope = js_sys::global().unchecked_into();
    let init = RequestInit::new();
    init.set_signal(Some(signal));
    // `worker::Fetch` takes a request of its own, which parses all that Cloudflare says of the client
    let answer = scope.fetch_with_request_and_init(&outgoing(request, pass)?, &init);
    Ok(JsFuture::from(answer).await?.unchecked_into())
}

/// The request for the upstream. The Worker itself writes the headers about the client and its connection.
fn outgoing(request: &Request, Pass { url, client, .. }: &Pass) -> Result<Request, JsValue> {
    let headers = web_sys::Headers::new_with_headers(&request.headers())?;
    let own_url = request.url();
    let (scheme, _) = own_url.split_once("://").unwrap_or_default();
    let (host, _path, _query) = parts(&own_url);
    let upgrades = is_websocket(request);
    drop_of_a_connection(&headers);
    let names: Vec<String> = Headers(headers.clone()).keys().collect();
    for name in names {
        let read = name.replace('_', "-"); // as CGI and WSGI read it
        if OF_A_CONNECTION.contains(&&*read)
            || OF_THE_WORKER.contains(&&*read)
            || read.starts_with("x-forwarded-")
        {
            headers.delete(&name)?;
        }
    }
    headers.set("x-forwarded-host", host)?;
    headers.set("x-forwarded-proto", scheme)?;
    if let Some(client) = client {
        headers.set("x-forwarded-for", client)?;
        headers.set("x-real-ip", client)?;
    }
    if upgrades {
        headers.set("upgrade", "websocket")?;
    }
    let init = RequestInit::new();
    init.set_headers(&headers);
    init.set_redirect(RequestRedirect::Manual);
    match url {
        Some(url) => {
            let to = Request::new_with_str_and_init(url, request.unchecked_ref())?;
            Request::new_with_request_and_init(&to, &init)
        }
        None => Request::new_with_request_and_init(request, &init),
    }
}

/// With `Upgrade` the runtime sends a `GET` without a body, whatever the request is. So no other request may keep it.
fn is_websocket(request: &Request) -> bool {
    let upgrade = request.headers().get("upgrade").ok().flatten().unwrap_or_default();
    request.method() == "GET"
        && request.body().is_none()
        && upgrade.eq_ignore_ascii_case("websocket")
}

fn drop_of_a_connection(headers: &web_sys::Headers) {
    let named = headers.get("connection").ok().flatten().unwrap_or_default();
    for name in named.split(',').map(str::trim).chain(OF_A_CONNECTION) {
        let _ = headers.delete(name); // a text that cannot be a name is not the name of a header
    }
}

/// The answer, after whose end the lease is released. Without a lease the runtime carries the bytes alone.
fn released(
    answer: Response,
    pass: &Pass,
    context: &Context,
    held: Option<Held>,
    signal: AbortSignal,
) -> Result<Response, JsValue> {
    if let Some(held) = &held {
        held.answered();
    }
    let init: &ResponseInit = answer.unchecked_ref();
    let response = match (answer.websocket(), answer.body(), held) {
        (Some(upstream), _, held) => {
            let socket = match held {
                Some(held) => coupled(upstream.into(), context, held.release())?,
                None => upstream.into(),
            };
            let headers = Headers(answer.headers());
            let switching = ResponseBuilder::new().with_status(101).with_headers(headers);
            switching.with_websocket(socket).empty().into()
        }
        (None, body, None) => Response::new_with_opt_readable_stream_and_init(body.as_ref(), init)?,
        (None, None, Some(held)) => {
            context.wait_until(held.release());
            Response::new_with_opt_str_and_init(None, init)?
        }
        (None, Some(body), Some(held)) => {
            let through = stream_like(&answer)?;
            let piped = body.pipe_to(&through.writable());
            context.wait_until(async move {
                if let Err(error) = JsFuture::from(piped).await {
                    log(&signal, "upstream: the answer broke off", &error);
                }
                held.release().await;
            });
            let readable: ReadableStream = through.readable();
            Response::new_with_opt_readable_stream_and_init(Some(&readable), init)?
        }
    };
    let headers = response.headers();
    drop_of_a_connection(&headers);
    for (name, value) in &pass.headers {
        headers.append(name, value)?;
    }
    Ok(response)
}

/// A stream for a body as long as the answer's, if its length is known. The runtime encodes a coded body anew.
fn stream_like(answer: &Response) -> Result<TransformStream, JsValue> {
    let headers = answer.headers();
    let length = headers.get("content-length")?.and_then(|length| length.parse::<u64>().ok());
    match length {
        Some(length) if !headers.has("content-encoding")? => {
            Ok(FixedLengthStream::new_big_int(length.into())?.into())
        }
        _ => Ok(IdentityTransformStream::new().into()),
    }
}
