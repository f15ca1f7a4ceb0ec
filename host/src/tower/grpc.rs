//! Refusals as clients of gRPC understand them: a status in header fields, in place of the HTTP status and problem details.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use http::header::{CONTENT_TYPE, HeaderMap};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use tidegate_gate::{Bounded, read_json};
use tidegate_http::Response;

/// What a message may not have as it is (gRPC over HTTP/2, "Status-Message").
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

const INVALID_ARGUMENT: u8 = 3;
const PERMISSION_DENIED: u8 = 7;
const RESOURCE_EXHAUSTED: u8 = 8;
const INTERNAL: u8 = 13;
const UNAVAILABLE: u8 = 14;

/// Whether a request is a call of gRPC.
pub(super) fn is_call(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    content_type.is_some_and(|value| {
        value.strip_prefix("application/grpc").is_some_and(|rest| {
            rest.is_empty() || rest.starts_with(['+', ';']) // `application/grpc-web` has trailers in its body
        })
    })
}

/// The same refusal as a response of gRPC without messages. `google.rpc.RetryInfo` in its details says how long to wait.
pub(super) fn refusal(refused: Response) -> Response {
    let code = match refused.status {
        400 => INVALID_ARGUMENT,
        403 => PERMISSION_DENIED,
        429 => RESOURCE_EXHAUSTED,
        503 => UNAVAILABLE,
        _ => INTERNAL,
    };
    let (detail, wait_us) = problem(&refused.body);
    let mut headers = refused.headers;
    headers.retain(|(name, _)| *name != "content-type");
    let message = utf8_percent_encode(&detail, ESCAPED).to_string();
    headers.push(("content-type", "application/grpc".into()));
    headers.push(("grpc-status", code.to_string().into()));
    headers.push(("grpc-message", message.into()));
    if let Some(wait_us) = wait_us {
        let details = STANDARD_NO_PAD.encode(status(code, &detail, wait_us));
        headers.push(("grpc-status-details-bin", details.into()));
    }
    Response { status: 200, headers, body: String::new() }
}

/// What the problem says, and how many µs to wait.
fn problem(body: &str) -> (String, Option<u64>) {
    let fields =
        ["type", "title", "status", "detail", "policy", "violated-policies", "retry_after_us"];
    let read = read_json(body, |node| {
        let fields = node.fields(&fields)?;
        let wait = fields.optional::<Bounded<0>>("retry_after_us")?;
        Ok((fields.get::<String>("detail")?, wait.map(Bounded::get)))
    });
    read.unwrap_or_default()
}

/// A `google.rpc.Status` with a `google.rpc.RetryInfo`, in the encoding of Protocol Buffers. It has so few fields that their crates would
/// be more to carry than these lines.
fn status(code: u8, message: &str, wait_us: u64) -> Vec<u8> {
    let mut delay = Vec::new(); // google.protobuf.Duration
    number(1, wait_us / 1_000_000, &mut delay);
    number(2, wait_us % 1_000_000 * 1_000, &mut delay);
    let mut retry_info = Vec::new();
    bytes(1, &delay, &mut retry_info);
    let mut any = Vec::new(); // google.protobuf.Any
    bytes(1, b"type.googleapis.com/google.rpc.RetryInfo", &mut any);
    bytes(2, &retry_info, &mut any);
    let mut status = Vec::new();
    number(1, code.into(), &mut status);
    bytes(2, message.as_bytes(), &mut status);
    bytes(3, &any, &mut status);
    status
}

fn number(field: u8, value: u64, into: &mut Vec<u8>) {
    if value > 0 {
        into.push(field << 3); // a varint
        varint(value, into);
    }
}

fn bytes(field: u8, value: &[u8], into: &mut Vec<u8>) {
    into.push(field << 3 | 2); // length-delimited
    varint(u64::try_from(value.len()).unwrap_or(u64::MAX), into);
    into.extend_from_slice(value);
}

/// Seven bits a byte, the lowest first; the highest bit says that more follow.
fn varint(mut value: u64, into: &mut Vec<u8>) {
    loop {
        let low = u8::try_from(value & 0x7f).unwrap_or_default();
        value >>= 7;
        if value == 0 {
            return into.push(low);
        }
        into.push(low | 0x80);
    }
}
