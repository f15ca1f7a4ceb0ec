//! The way of a request that passes: to its upstream and back. `tidegate_http` has decided where it goes and what it holds.

use js_sys::Function;
use js_sys::futures::JsFuture;
use tidegate_http::{AnswerEnd, Meter, Pass, Served, upstream_failed};
use wasm_bindgen::closure::Closure;
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast as _, JsError, JsValue};
use web_sys::{
    ReadableStream, ReadableStreamDefaultReader, Request, RequestInit, RequestRedirect, Response,
    ResponseInit, TransformStream, WorkerGlobalScope, WritableStream,
};
use worker::worker_sys::ext::ResponseExt as _;
use worker::worker_sys::{Context as JsContext, FixedLengthStream};
use worker::{AbortController, AbortSignal, Context, Headers, ResponseBuilder};

use crate::body::next;
use crate::exchanges::End;
use crate::held::Held;
use crate::isolate::{Isolate, parts};
use crate::log::log_error;
use crate::node::with;
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
        let running = with(now_ms, |node, _, _| node.exchanges.remove(exchange));
        let Some(End::Served(Served::Pass(mut pass))) = running.and_then(|running| running.end)
        else {
            return Err(JsError::new("the request does not pass").into());
        };
        let plain = pass.reservations.iter().any(|held| held.meter.seeks());
        let held = Held::begin(&mut pass, hold);
        let (context, signal) = (Context::new(context), left(&request));
        match send(outgoing(&request, &pass, plain), &signal).await {
            Ok(answer) => released(answer, &pass, &context, held, signal),
            Err(error) => {
                log(&signal, "upstream", &error);
                if let Some(held) = held {
                    let left = signal.aborted();
                    let end = if left { AnswerEnd::CutOff } else { AnswerEnd::Failed };
                    context.wait_until(held.end(end));
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

async fn send(
    outgoing: Result<Request, JsValue>,
    signal: &AbortSignal,
) -> Result<Response, JsValue> {
    let scope: WorkerGlobalScope = js_sys::global().unchecked_into();
    let init = RequestInit::new();
    init.set_signal(Some(signal));
    // `worker::Fetch` takes a request of its own, which parses all that Cloudflare says of the client
    let answer = scope.fetch_with_request_and_init(&outgoing?, &init);
    Ok(JsFuture::from(answer).await?.unchecked_into())
}

/// The request for the upstream. The Worker itself writes the headers about the client and its connection, and asks for a plain
/// answer if it reads it.
fn outgoing(
    request: &Request,
    Pass { url, client, .. }: &Pass,
    plain: bool,
) -> Result<Request, JsValue> {
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
    if plain {
        headers.set("accept-encoding", "identity")?;
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

/// The answer, after whose end what is held ends. The runtime carries the bytes alone, unless the meter reads them.
fn released(
    answer: Response,
    pass: &Pass,
    context: &Context,
    mut held: Option<Held>,
    signal: AbortSignal,
) -> Result<Response, JsValue> {
    if let Some(held) = &mut held {
        held.answered(&answer);
    }
    let init: &ResponseInit = answer.unchecked_ref();
    let response = match (answer.websocket(), answer.body(), held) {
        (Some(upstream), _, held) => {
            let socket = match held {
                Some(held) => coupled(upstream.into(), context, held.end(AnswerEnd::Whole))?,
                None => upstream.into(),
            };
            let headers = Headers(answer.headers());
            let switching = ResponseBuilder::new().with_status(101).with_headers(headers);
            switching.with_websocket(socket).empty().into()
        }
        (None, body, None) => Response::new_with_opt_readable_stream_and_init(body.as_ref(), init)?,
        (None, None, Some(held)) => {
            context.wait_until(held.end(AnswerEnd::Whole));
            Response::new_with_opt_str_and_init(None, init)?
        }
        (None, Some(body), Some(mut held)) => {
            let through = stream_like(&answer)?;
            let writable = through.writable();
            context.wait_until(async move {
                let mut meters = held.meters();
                let piped = match meters.is_empty() {
                    false => metered(&body, &writable, &mut meters).await,
                    true => JsFuture::from(body.pipe_to(&writable)).await.map(drop),
                };
                let end = match piped {
                    Ok(()) => AnswerEnd::Whole,
                    Err(error) => {
                        log(&signal, "upstream: the answer broke off", &error);
                        AnswerEnd::CutOff
                    }
                };
                held.end(end).await;
            });
            let readable: ReadableStream = through.readable();
            let response = Response::new_with_opt_readable_stream_and_init(Some(&readable), init)?;
            weaken(&response.headers())?;
            response
        }
    };
    let headers = response.headers();
    drop_of_a_connection(&headers);
    for (name, value) in &pass.headers {
        headers.append(name, value)?;
    }
    Ok(response)
}

/// Carries the bytes of a body, of which meters take note.
async fn metered(
    body: &ReadableStream,
    to: &WritableStream,
    meters: &mut [&mut Meter],
) -> Result<(), JsValue> {
    let reader: ReadableStreamDefaultReader = body.get_reader().unchecked_into();
    let writer = to.get_writer()?;
    loop {
        match next(&reader).await {
            Ok(Some(chunk)) => {
                let bytes = chunk.to_vec();
                meters.iter_mut().for_each(|meter| meter.push(&bytes));
                if let Err(error) = JsFuture::from(writer.write_with_chunk(&chunk)).await {
                    drop(reader.cancel());
                    return Err(error);
                }
            }
            Ok(None) => {
                let _ = JsFuture::from(writer.close()).await; // the meter has seen all, also if the client has not
                return Ok(());
            }
            Err(error) => {
                drop(writer.abort_with_reason(&error));
                return Err(error);
            }
        }
    }
}

/// The runtime encodes a coded body anew, so its bytes are others than those that a strong `ETag` names (RFC 9110 §8.8.1).
fn weaken(headers: &web_sys::Headers) -> Result<(), JsValue> {
    let strong = headers.get("etag")?.filter(|tag| tag.starts_with('"'));
    match strong {
        Some(tag) if headers.has("content-encoding")? => headers.set("etag", &format!("W/{tag}")),
        _ => Ok(()),
    }
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
