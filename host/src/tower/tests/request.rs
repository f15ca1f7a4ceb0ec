//! Which requests pass, by which key, and what their responses say.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use tower::Service;

use super::*;
use crate::gate::{Metering, Table};
use crate::{Resolved, StoreError};

#[tokio::test]
async fn a_refusal_has_the_words_of_an_exchange_and_reaches_no_service() {
    let layer = layer(&of_client(1), |builder| builder);
    let (status, fields, body) = ask(&layer, get("a")).await;
    assert_eq!((status, body.as_str()), (200, "hello"));
    assert_eq!(fields["ratelimit-policy"], "\"p\";q=1;w=3600");
    assert_eq!(fields["ratelimit"], "\"p\";r=0;t=3600");
    assert!(!fields.contains_key("retry-after"));

    let (status, fields, body) = ask(&layer, get("a")).await;
    assert_eq!((status, &fields["retry-after"]), (429, &"3600".parse().unwrap()));
    assert_eq!(fields["content-type"], "application/problem+json");
    assert_eq!(fields["ratelimit"], "\"p\";r=0;t=3600");
    assert!(body.contains("\"violated-policies\":[\"p\"]"), "{body}");
    assert_eq!(ask(&layer, get("b")).await.0, 200);

    let never =
        service_fn(async |_| -> Result<Response<Full<Bytes>>, BoxError> { panic!("reached") });
    let refused = layer.layer(never).oneshot(get("a").body(()).unwrap()).await.unwrap();
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.body().size_hint().exact(), Some(u64::try_from(body.len()).unwrap()));
}

#[tokio::test]
async fn the_fields_stand_beside_those_of_another_limit() {
    let inner = service_fn(async |_| {
        let response = Response::builder().header("ratelimit", "\"other\";r=7");
        Ok::<_, BoxError>(response.body(Full::<Bytes>::default())?)
    });
    let layer = layer(&of_client(1), |builder| builder);
    let response = layer.layer(inner).oneshot(get("a").body(()).unwrap()).await.unwrap();
    let fields: Vec<_> = response.headers().get_all("ratelimit").iter().collect();
    assert_eq!(fields, ["\"other\";r=7", "\"p\";r=0;t=3600"]);
}

#[tokio::test]
async fn a_function_finds_the_key_and_leaves_other_requests_to_the_sources() {
    let layer = layer(&of_client(1), |builder| {
        builder.key(|request| request.extensions.get().map(|user: &u32| format!("user:{user}")))
    });
    let user = |user: u32| Request::get("/").extension(user);
    assert_eq!(status(&layer, user(1)).await, 200);
    assert_eq!(status(&layer, user(1).header("client", "a")).await, 429);
    assert_eq!(status(&layer, user(2)).await, 200);
    assert_eq!(status(&layer, get("a")).await, 200);
    assert_eq!(status(&layer, get("a")).await, 429);
    let (status, _, body) = ask(&layer, Request::get("/")).await;
    assert_eq!(status, 400);
    assert!(
        body.contains("expected a request with \\\"header:client\\\"; found none of them"),
        "{body}"
    );
}

#[tokio::test]
async fn a_key_that_cannot_be_counted_by_is_refused() {
    let layer = layer(&of_client(1), |builder| {
        builder.key(|request| Some(request.uri.path().get(1..)?.to_owned()))
    });
    let long = format!("/{}", "k".repeat(600));
    for path in ["/", "/ip:garbage", &long] {
        let (status, _, body) = ask(&layer, Request::get(path)).await;
        assert_eq!(status, 400, "{path}");
        assert!(body.contains("`key`: expected"), "{body}");
    }
}

#[tokio::test]
async fn an_address_is_that_of_the_peer_or_of_the_client_behind_a_trusted_proxy() {
    let file = "trusted_proxies = ['10.0.0.0/8']
                [policies.p]
                limits = [{ algorithm = 'fixed_window', limit = 1, period = '365d' }]
                deny = ['ip:192.0.2.66']";
    let policies = Policies::parse(file).unwrap();
    let store = Store::memory(&policies, 1 << 20).unwrap();
    let builder = RateLimitLayer::builder(store, &policies, "p");
    let layer = builder.peer(|request| request.extensions.get().copied()).build().unwrap();
    let from = |peer: &str, client: &str| {
        let peer: IpAddr = peer.parse().unwrap();
        Request::get("/").extension(peer).header("x-forwarded-for", client)
    };
    assert_eq!(status(&layer, from("192.0.2.1", "192.0.2.2")).await, 200);
    assert_eq!(status(&layer, from("192.0.2.1", "192.0.2.3")).await, 429, "no proxy");
    assert_eq!(status(&layer, from("::ffff:192.0.2.1", "")).await, 429, "the same address");
    assert_eq!(status(&layer, from("10.0.0.1", "192.0.2.2")).await, 200);
    assert_eq!(status(&layer, from("10.0.0.2", "192.0.2.2")).await, 429);

    let (denied, fields, _) = ask(&layer, from("192.0.2.66", "")).await;
    assert_eq!(denied, 403);
    assert!(!fields.contains_key("retry-after"), "no wait helps: {fields:?}");
    assert_eq!(status(&layer, Request::get("/")).await, 400, "nobody knows the address");
}

#[tokio::test]
async fn a_function_finds_the_cost() {
    let layer =
        layer(&of_client(5), |builder| builder.cost(|request| request.uri.query()?.parse().ok()));
    let cost = |cost: u32| Request::get(format!("/?{cost}")).header("client", "a");
    assert_eq!(ask(&layer, cost(3)).await.1["ratelimit"], "\"p\";r=2;t=3600");
    assert_eq!(status(&layer, cost(3)).await, 429);
    assert_eq!(
        ask(&layer, get("a")).await.1["ratelimit"],
        "\"p\";r=1;t=3600",
        "the policy's own cost"
    );
    let (status, _, body) = ask(&layer, cost(6)).await;
    assert_eq!(status, 400);
    assert!(body.contains("the most at once is 5"), "{body}");
}

#[tokio::test]
async fn a_function_finds_the_class() {
    let limit =
        "{ algorithm = 'fleet_usage', capacity = 2, reserve = '50%', time_to_live = '30s' }";
    let layer = layer(&format!("key = ['header:client']\nlimits = [{limit}]"), |builder| {
        builder.class(|request| request.uri.query().map(str::to_owned))
    });
    let held = ask_and_keep(&layer, get("a")).await;
    assert_eq!(held.status(), 200);
    assert_eq!(status(&layer, get("a")).await, 503, "the rest is for the most important class");
    let critical = Request::get("/?critical").header("client", "a");
    assert_eq!(status(&layer, critical).await, 200);
    let (status, _, body) = ask(&layer, Request::get("/?x").header("client", "a")).await;
    assert_eq!(status, 400);
    assert!(body.contains("`class`: expected one of default, critical; found"), "{body}");
}

#[tokio::test]
async fn a_body_of_a_request_passes_as_it_is() {
    let layer = layer(&of_client(1), |builder| builder);
    let echo = service_fn(async |request: Request<Full<Bytes>>| {
        assert_eq!(request.extensions().get(), Some(&7));
        Ok::<_, BoxError>(Response::new(request.into_body()))
    });
    let sent = Bytes::from(vec![0xff; 100_000]);
    let request =
        Request::post("/").header("client", "a").extension(7).body(Full::new(sent.clone()));
    let response = layer.layer(echo).oneshot(request.unwrap()).await.unwrap();
    let received = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(received.as_ptr(), sent.as_ptr(), "it was not even copied");
}

/// A service whose clones are not ready.
struct Ready(bool);

impl Clone for Ready {
    fn clone(&self) -> Self {
        Self(false)
    }
}

impl Service<Request<()>> for Ready {
    type Response = Response<Full<Bytes>>;
    type Error = BoxError;
    type Future = std::future::Ready<Result<Response<Full<Bytes>>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0 = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        assert!(self.0, "the service was not ready");
        std::future::ready(Ok(Response::new(Full::default())))
    }
}

#[tokio::test]
async fn the_service_that_is_called_is_the_one_that_was_ready() {
    let layer = layer(&of_client(2), |builder| builder);
    let mut service = layer.layer(Ready(false));
    for _ in 0..2 {
        let request = get("a").body(()).unwrap();
        assert_eq!(service.ready().await.unwrap().call(request).await.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn on_error_decides_and_the_error_is_noted_if_the_store_fails() {
    for (on_error, expected) in [("open", 200), ("closed", 503)] {
        let file = format!("[policies.p]\n{}on_error = '{on_error}'", of_client(1));
        let policies = Policies::parse(&file).unwrap();
        let policy = &policies.all()[0];
        let store = Arc::new(Store::memory(&policies, Table::least_bytes(policy)).unwrap());
        let mut numbers = 0..;
        let mut fills = || Resolved::new(policy, &format!("k{}", numbers.next().unwrap())).unwrap();
        while store.operate(&fills(), Timestamp(0), 1).await.is_ok() {}

        let noted = Arc::new(Mutex::new(Vec::new()));
        let notes = Arc::clone(&noted);
        let layer = RateLimitLayer::builder(store, &policies, "p")
            .clock(|| Timestamp(0))
            .on_store_error(move |error| notes.lock().unwrap().push(error.clone()))
            .build()
            .unwrap();
        let (status, fields, _) = ask(&layer, get("a")).await;
        assert_eq!(status, expected);
        assert!(!fields.contains_key("ratelimit"), "nobody knows what is left: {fields:?}");
        assert!(matches!(noted.lock().unwrap()[..], [StoreError::Full { .. }]), "{noted:?}");
    }
}

#[test]
fn a_layer_that_could_not_work_is_not_built() {
    let policies = Policies::parse(
        "jwt = { keys = 'JWT_KEYS', issuer = 'i', audience = 'a', algorithms = ['RS256'] }
         policies.p.limits = [{ algorithm = 'fixed_window', limit = 1, period = '1h' }]
         [policies.country]
         key = ['header:client', ['header:tenant', 'country']]
         limits = [{ algorithm = 'fixed_window', limit = 1, period = '1h' }]
         [policies.token]
         key = ['jwt:sub']
         limits = [{ algorithm = 'fixed_window', limit = 1, period = '1h' }]",
    )
    .unwrap();
    let store = Arc::new(Store::memory(&policies, 1 << 20).unwrap());
    let builder = |name: &str| RateLimitLayer::builder(Arc::clone(&store), &policies, name);
    let error = |builder: Builder| builder.build().unwrap_err().to_string();
    let expected = "`key`: expected sources that the layer can read, found";
    assert_eq!(error(builder("q")), "expected the name of a policy of the file, found \"q\"");
    assert!(error(builder("p")).contains(&format!("{expected} \"ip\"")));
    assert!(error(builder("country")).contains(&format!("{expected} \"country\"")));
    assert!(error(builder("token")).contains(&format!("{expected} \"jwt:sub\"")));
    let own_key = |name: &str| builder(name).key(|_| Some("k".to_owned()));
    for name in ["p", "country", "token"] {
        assert!(own_key(name).build().is_ok(), "{name}");
    }
    assert_eq!(
        error(own_key("p").metering(Metering::default())),
        "policy \"p\": expected `reservations` beside `metering`, found none"
    );

    let others = "policies.p.limits = [{ algorithm = 'fixed_window', limit = 2, period = '1h' }]";
    let others = Store::memory(&Policies::parse(others).unwrap(), 1 << 20).unwrap();
    let of_others = RateLimitLayer::builder(others, &policies, "p").key(|_| None).build();
    assert_eq!(of_others.unwrap_err(), LayerError::OtherStore("p".to_owned()));
}
