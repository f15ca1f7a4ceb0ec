//! The layer in front of a service of tonic: the example.

use std::time::Duration;

use tokio::net::TcpListener;
use tonic::transport::Endpoint;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt;

#[path = "../examples/tonic.rs"]
#[expect(dead_code, reason = "its `main` listens on a fixed port")]
mod example;

#[tokio::test]
async fn a_refused_call_is_resource_exhausted_and_says_when_to_come_back() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(example::serve(listener));
    let channel = Endpoint::from_shared(url).unwrap().connect().await.unwrap();
    let mut client = HealthClient::new(channel);
    let mut passed = 0;
    let refused: Status = loop {
        match client.check(HealthCheckRequest { service: String::new() }).await {
            Ok(answer) if passed < 100 => {
                assert!(answer.metadata().contains_key("ratelimit"), "{answer:?}");
                passed += 1;
            }
            answer => break answer.unwrap_err(),
        }
    };
    assert!(passed >= 5, "{passed} passed");
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    assert!(refused.message().starts_with("the same request is granted in "), "{refused:?}");
    assert!(refused.message().ends_with(" s"), "{refused:?}");
    let wait = refused.get_details_retry_info().unwrap().retry_delay.unwrap();
    assert!(wait > Duration::ZERO && wait <= Duration::from_secs(6), "{wait:?}");
    let seconds: u64 =
        refused.metadata().get("retry-after").unwrap().to_str().unwrap().parse().unwrap();
    assert_eq!(
        Duration::from_secs(seconds),
        Duration::from_secs(wait.as_secs() + u64::from(wait.subsec_nanos() > 0))
    );
}
