//! Refusals of calls of gRPC.

use std::time::Duration;

use tonic_types::StatusExt;

use super::*;

/// Asks as a client of gRPC. Returns the status of gRPC, the header fields and the body.
async fn call(layer: &RateLimitLayer, client: &str) -> (String, HeaderMap, String) {
    let request = get(client).header("content-type", "application/grpc");
    let (status, fields, body) = ask(layer, request).await;
    assert_eq!(status, 200);
    let code = fields.get("grpc-status").map_or("", |code| code.to_str().unwrap()).to_owned();
    (code, fields, body)
}

#[tokio::test]
async fn a_refusal_is_resource_exhausted_with_the_wait_in_its_details() {
    let layer = layer(&of_client(1), |builder| builder);
    let (code, fields, body) = call(&layer, "a").await;
    assert_eq!((code.as_str(), body.as_str()), ("", "hello"));
    assert!(fields.contains_key("ratelimit"), "{fields:?}");
    let (code, fields, body) = call(&layer, "a").await;
    assert_eq!((code.as_str(), body.as_str()), ("8", ""));
    assert_eq!(fields["content-type"], "application/grpc");
    assert_eq!(fields["grpc-message"], "the same request is granted in 3600 s");
    assert_eq!(
        (&fields["retry-after"], fields.contains_key("ratelimit")),
        (&"3600".parse().unwrap(), true)
    );
    let status = tonic::Status::from_header_map(&fields).unwrap();
    assert_eq!(status.code(), tonic::Code::ResourceExhausted);
    assert_eq!(status.message(), "the same request is granted in 3600 s");
    let wait = status.get_details_retry_info().unwrap().retry_delay.unwrap();
    assert_eq!(wait, Duration::from_secs(3_600));
}

#[tokio::test]
async fn each_refusal_has_its_code() {
    let denied = of_client(1) + "deny = ['header:client:bad']";
    assert_eq!(call(&layer(&denied, |builder| builder), "bad").await.0, "7");
    assert_eq!(call(&layer(&of_client(1), |builder| builder), "").await.0, "3"); // no key
    let costly = layer(&of_client(1), |builder| builder.cost(|_| Some(2)));
    assert_eq!(call(&costly, "a").await.0, "3");
}

#[tokio::test]
async fn only_calls_of_grpc_get_it() {
    for (content_type, status) in [
        ("application/grpc", 200),
        ("application/grpc+proto", 200),
        ("application/grpc;x=1", 200),
        ("application/grpc-web", 429),
        ("application/grpcish", 429),
        ("application/json", 429),
    ] {
        let layer = layer(&of_client(1), |builder| builder);
        call(&layer, "a").await;
        let request = get("a").header("content-type", content_type);
        assert_eq!(ask(&layer, request).await.0, status, "{content_type}");
    }
}

#[tokio::test]
async fn a_wait_is_exact_to_the_microsecond() {
    let bucket = "key = ['header:client']\nlimits = [{ algorithm = 'token_bucket', capacity = 1, rate = '3/s' }]";
    let layer = layer(bucket, |builder| builder);
    call(&layer, "a").await;
    let (_, fields, _) = call(&layer, "a").await;
    let status = tonic::Status::from_header_map(&fields).unwrap();
    let wait = status.get_details_retry_info().unwrap().retry_delay.unwrap();
    assert_eq!(wait, Duration::from_micros(333_334));
}
