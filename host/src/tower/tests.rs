//! Tests of the layer in front of services without a server.

mod grpc;
mod held;
mod request;
mod several;

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Builder as Asked;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tower::{BoxError, Layer, ServiceExt, service_fn};

use super::*;
use crate::{Policies, Store, Timestamp};

/// The body of a response that lasts as long as its sender.
#[derive(Debug)]
struct Open(UnboundedReceiver<Result<Bytes, BoxError>>);

impl Body for Open {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.0.poll_recv(context).map(|received| received.map(|bytes| bytes.map(Frame::data)))
    }
}

fn open() -> (UnboundedSender<Result<Bytes, BoxError>>, Open) {
    let (sender, receiver) = unbounded_channel();
    (sender, Open(receiver))
}

/// A layer of the policy `p`, which `build` goes on to describe.
fn layer(policy: &str, build: impl FnOnce(Builder) -> Builder) -> RateLimitLayer {
    let policies = Policies::parse(&format!("[policies.p]\n{policy}")).unwrap();
    let store = Store::memory(&policies, 1 << 20).unwrap();
    let builder = RateLimitLayer::builder(store, &policies, "p").clock(|| Timestamp(0));
    build(builder).build().unwrap()
}

/// Asks a service that answers `hello`.
async fn ask_and_keep(
    layer: &RateLimitLayer,
    request: Asked,
) -> Response<ResponseBody<Full<Bytes>>> {
    let hello = service_fn(async |_| Ok::<_, BoxError>(Response::new(Full::from("hello"))));
    layer.layer(hello).oneshot(request.body(()).unwrap()).await.unwrap()
}

/// Asks a service that answers `hello`. Returns the status, header fields and body.
async fn ask(layer: &RateLimitLayer, request: Asked) -> (u16, HeaderMap, String) {
    let (head, body) = ask_and_keep(layer, request).await.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (head.status.as_u16(), head.headers, String::from_utf8(body.into()).unwrap())
}

async fn status(layer: &RateLimitLayer, request: Asked) -> u16 {
    ask(layer, request).await.0
}

fn get(client: &str) -> Asked {
    Request::get("/").header("client", client)
}

/// The limit of a client whose name is in a header.
fn of_client(limit: u32) -> String {
    format!(
        "key = ['header:client']
         limits = [{{ algorithm = 'fixed_window', limit = {limit}, period = '1h' }}]\n"
    )
}
