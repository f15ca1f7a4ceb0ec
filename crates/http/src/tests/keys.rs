use std::string::ToString;

use serde_json::json;
use tidegate_gate::Policies;

use super::{POLICIES, Server, about, decided, header, planned, send, sent};
use crate::{Access, Outcome};

const SHARED: &str = "
[policies.p]
limits = [
  { algorithm = 'fixed_window', name = 'user', limit = 3, period = '1m' },
  { algorithm = 'fixed_window', name = 'org', depth = 1, limit = 5, period = '1m' },
]";

#[test]
fn a_peek_says_whether_a_cost_would_pass_and_when_and_changes_nothing() {
    let mut server = Server::new(POLICIES);
    server.post("/v1/check", r#"{"policy":"api","key":"a/b c","cost":2}"#);
    for _ in 0..2 {
        let free = server.json("GET", "/v1/keys/api/a/b%20c", "");
        assert_eq!((&free["allowed"], &free["remaining"]), (&json!(true), &json!(1)));
        let one = server.json("GET", "/v1/keys/api/a/b%20c?cost=1", "");
        assert_eq!((&one["allowed"], &one["remaining"]), (&json!(true), &json!(0)));
        let two = server.json("GET", "/v1/keys/api/a/b%20c?cost=2", "");
        assert_eq!((&two["allowed"], &two["retry_after_us"]), (&json!(false), &json!(333_334)));
        assert_eq!(two["limits"][1], free["limits"][1], "the other limit would grant it");
    }
    let problem = server.call("GET", "/v1/keys/api/k?cost=4", "");
    assert_eq!(problem.status, 400, "no waiting helps: {}", problem.body);
}

#[test]
fn an_explanation_says_in_words_what_a_check_would_meet_and_changes_nothing() {
    let mut server = Server::new(
        "[policies.p]
cost = 2
deny = ['bad']
limits = [{ algorithm = 'sliding_log', name = 'log', rates = ['3/s', '4/m'] }]",
    );
    let mut words = |body: &str| {
        let said = server.json("POST", "/v1/explain", body);
        [said["limit_name"].clone(), said["bound"].clone(), said["text"].clone()]
    };
    let passes = "The request passes. After it `log` has the least left (3 in any 1 s and 4 in any 1 m): 1 of 3.";
    for _ in 0..2 {
        let all = json!("3 in any 1 s and 4 in any 1 m");
        assert_eq!(words(r#"{"policy":"p","key":"k"}"#), [json!("log"), all, json!(passes)]);
    }
    let bad = "The key is on the list `deny`, so its requests are refused and are not counted.";
    assert_eq!(words(r#"{"policy":"p","key":"bad"}"#), [json!(null), json!(""), json!(bad)]);
    server.post("/v1/check", r#"{"policy":"p","key":"k"}"#);
    let refused = server.json("POST", "/v1/explain", r#"{"policy":"p","key":"k"}"#);
    let text =
        "`log` refuses (3 in any 1 s): 1 of 3 are left and the request costs 2; it passes in 1 s.";
    assert_eq!((&refused["allowed"], &refused["text"]), (&json!(false), &json!(text)));
    let peeked = server.json("GET", "/v1/keys/p/k?cost=2", "");
    let mut without = refused;
    for field in ["limit_name", "bound", "text"] {
        without.as_object_mut().unwrap().remove(field);
    }
    assert_eq!(without, peeked);
    assert_eq!(
        server.call("POST", "/v1/explain", r#"{"policy":"p","key":"k","cost":4}"#).status,
        400
    );
}

#[test]
fn a_peek_needs_no_lease() {
    let mut server = Server::new(
        "[policies.p]
limits = [{ algorithm = 'concurrency', capacity = 1, time_to_live = '30s' }]",
    );
    let peek = |server: &mut Server| server.json("GET", "/v1/keys/p/k?cost=1", "");
    let (first, again) = (peek(&mut server), peek(&mut server));
    assert_eq!((&first["allowed"], first.get("lease")), (&json!(true), None));
    assert_eq!(again["allowed"], true, "it took none");
    server.post("/v1/leases", &about(",\"lease\":\"a\""));
    assert_eq!(peek(&mut server)["allowed"], false);
}

#[test]
fn a_reset_forgets_a_key_and_not_what_others_share_with_it() {
    let mut server = Server::new(SHARED);
    let check = |key: &str| json!({ "policy": "p", "key": key }).to_string();
    for _ in 0..3 {
        server.post("/v1/check", &check("acme/alice"));
    }
    server.post("/v1/check", &check("acme/bob"));
    let reset = server.json("DELETE", "/v1/keys/p/acme/alice", "");
    let remaining = |answer: &serde_json::Value| {
        [answer["limits"][0]["remaining"].clone(), answer["limits"][1]["remaining"].clone()]
    };
    // limits by less of the key come first
    assert_eq!(remaining(&reset), [1, 3], "alice has her 3, acme has used 4");
    let bob = server.json("GET", "/v1/keys/p/acme/bob", "");
    assert_eq!(remaining(&bob), [1, 2], "bob has what he had");
    let acme = server.json("DELETE", "/v1/keys/p/acme", "");
    assert_eq!(remaining(&acme), [5, 3], "acme itself starts afresh");
}

#[test]
fn units_that_come_back_can_be_spent_again() {
    let mut server = Server::new(POLICIES);
    let api = |rest: &str| std::format!("{{\"policy\":\"api\",\"key\":\"k\"{rest}}}");
    server.post("/v1/check", &api(",\"cost\":3"));
    let refund = server.post("/v1/refund", &api(",\"units\":2"));
    assert_eq!((&refund["remaining"], &refund["limits"][1]["remaining"]), (&json!(2), &json!(4)));
    let more = server.post("/v1/refund", &api(",\"units\":9"));
    assert_eq!(more["remaining"], 3, "never more than was taken");
    for (rest, detail) in [
        (",\"units\":0", "`units`: expected a whole number from 1 to"),
        (",\"units\":-1", "`units`: expected a whole number"),
        (",\"units\":1.5", "`units`: expected a whole number"),
        (",\"units\":1,\"cost\":1", "found the field \"cost\""),
        ("", "missing field `units`"),
    ] {
        let open = std::format!("{{\"policy\":\"open\",\"key\":\"k\"{rest}}}");
        server.refuses(("POST", "/v1/refund"), &open, detail);
    }
}

#[test]
fn head_is_answered_like_get() {
    let policies = super::policies();
    for (target, status) in [("/v1/keys/api/k?cost=1", None), ("/v1/keys/api/", Some(400))] {
        let [get, head] = ["GET", "HEAD"].map(|method| {
            match planned(sent(&policies, &Access::OPEN, (method, target), &[])) {
                Ok((_, checks)) => (None, Some(checks)),
                Err(response) => (Some(response), None),
            }
        });
        assert_eq!(get.0.as_ref().map(|response| response.status), status);
        assert_eq!(get, head);
    }
}

#[test]
fn keys_are_found_by_their_path_with_the_token() {
    let gone = send("GET", "/v1/keys/api/k", &[]);
    assert_eq!(super::answer(gone).status, 401);
    let policies = super::policies();
    let answer = |method: &str, target: &str| {
        super::answer(sent(&policies, &Access::OPEN, (method, target), &[]))
    };
    let method = answer("POST", "/v1/keys/api/k");
    assert_eq!((method.status, header(&method, "allow")), (405, Some("GET, HEAD, DELETE")));
    for (target, status) in [
        ("/v1/keys/", 404),
        ("/v1/keys/api", 404),
        ("/v1/keys/none/k", 404),
        ("/v1/keys/api/", 400),
        ("/v1/keys/api/%ff", 400),
        ("/v1/keys/api/k?cost=-1", 400),
        ("/v1/keys/api/k?colour=red", 400),
    ] {
        assert_eq!(answer("GET", target).status, status, "{target}");
    }
}

#[test]
fn a_blocked_key_is_refused_for_its_time_and_no_other_key() {
    let mut server = Server::new(SHARED);
    let check = |key: &str| json!({ "policy": "p", "key": key }).to_string();
    let path = "/v1/keys/p/acme/alice/block";
    let blocked = server.json("POST", path, r#"{"for":"1m"}"#);
    let refused = [json!(false), json!(60_000_000), json!(0)];
    let said = |answer: &serde_json::Value| {
        ["allowed", "retry_after_us", "remaining"].map(|field| answer[field].clone())
    };
    assert_eq!(said(&blocked), refused, "the answer to the block itself");
    let looked = server.json("GET", "/v1/keys/p/acme/alice", "");
    assert_eq!(said(&looked), refused, "a peek at no cost");
    let looked = server.post("/v1/check", r#"{"policy":"p","key":"acme/alice","cost":0}"#);
    assert_eq!(said(&looked), refused, "a check at no cost");
    let gate = server.call("GET", "/v1/gate?policy=p&key=acme/alice&cost=0", "");
    assert_eq!(gate.status, 429);
    let refused = server.post("/v1/check", &check("acme/alice"));
    assert_eq!(
        (&refused["allowed"], &refused["retry_after_us"]),
        (&json!(false), &json!(60_000_000))
    );
    assert_eq!(refused["limits"][1]["remaining"], 3, "nothing was taken");
    assert_eq!(server.post("/v1/check", &check("acme/bob"))["allowed"], true);
    let gate = server.call("GET", "/v1/gate?policy=p&key=acme/alice", "");
    assert_eq!((gate.status, header(&gate, "retry-after")), (429, Some("60")));
    assert!(gate.body.contains("abnormal-usage-detected"), "{}", gate.body);
    let peek = server.json("GET", "/v1/keys/p/acme/alice?cost=1", "");
    assert_eq!((&peek["allowed"], &peek["retry_after_us"]), (&json!(false), &json!(60_000_000)));

    server.wait(59);
    assert_eq!(server.post("/v1/check", &check("acme/alice"))["retry_after_us"], 1_000_000);
    server.wait(1);
    assert_eq!(server.post("/v1/check", &check("acme/alice"))["allowed"], true, "it is over");

    for ends in [("POST", path, r#"{"for":0}"#), ("DELETE", "/v1/keys/p/acme/alice", "")] {
        server.json("POST", path, r#"{"for":60000000}"#);
        assert_eq!(server.post("/v1/check", &check("acme/alice"))["allowed"], false);
        assert_eq!(server.json(ends.0, ends.1, ends.2)["allowed"], true);
        assert_eq!(server.post("/v1/check", &check("acme/alice"))["allowed"], true, "{ends:?}");
    }
}

#[test]
fn bad_blocks_are_refused() {
    let mut server = Server::new(
        "[policies.p]
limits = [{ algorithm = 'fixed_window', depth = 1, limit = 3, period = '1m' }]
[policies.q]
limits = [{ algorithm = 'fixed_window', limit = 3, period = '1m' }]",
    );
    for (path, body, detail) in [
        ("/v1/keys/p/k/block", r#"{"for":1}"#, "a limit that counts by the whole key"),
        ("/v1/keys/q/k/block", "{}", "missing field `for`"),
        ("/v1/keys/q/k/block", r#"{"for":-1}"#, "expected a whole number from 0"),
        (
            "/v1/keys/q/k/block",
            r#"{"for":"soon"}"#,
            "`for`: expected a span of time in whole microseconds",
        ),
        ("/v1/keys/q/k/block", r#"{"for":1,"key":"k"}"#, "found the field \"key\""),
    ] {
        server.refuses(("POST", path), body, detail);
    }
    assert_eq!(server.call("POST", "/v1/keys/q/k", "{}").status, 405);
    assert_eq!(server.call("POST", "/v1/keys/none/k/block", r#"{"for":1}"#).status, 404);
    assert_eq!(server.json("GET", "/v1/keys/q/block", "")["remaining"], 3, "a key of that name");
    assert_eq!(
        server.json("GET", "/v1/keys/q/k/block", "")["remaining"],
        3,
        "and one that ends so"
    );
}

#[test]
fn a_blocked_key_gets_no_budget_and_reporters_refuse_everything() {
    let mut server = Server::new(
        "[policies.p]
limits = [
  { algorithm = 'token_bucket', capacity = 100, rate = '100/s' },
  { algorithm = 'budget', most = 50, time = '10s' },
  { algorithm = 'suppression', rate = '100/s' },
]",
    );
    let wants = about(",\"lease\":\"n1\",\"wants\":50");
    assert_eq!(server.post("/v1/budget", &wants)["budget"]["granted"], 50);
    server.wait(20);
    server.json("POST", "/v1/keys/p/k/block", r#"{"for":60000000}"#);
    assert_eq!(server.post("/v1/budget", &wants)["budget"]["granted"], 0);
    let report = server.post("/v1/report", &about(",\"admitted\":1,\"suppressed\":0"));
    assert_eq!(report["factor"], 1_u64 << 32);
}

#[test]
fn a_peek_at_a_blocked_key_takes_nothing_from_the_limits() {
    let mut server = Server::new(SHARED);
    server.json("POST", "/v1/keys/p/k/block", r#"{"for":60000000}"#);
    let peek = server.json("GET", "/v1/keys/p/k?cost=1", "");
    assert_eq!((&peek["allowed"], &peek["limits"][1]["remaining"]), (&json!(false), &json!(3)));
}

#[test]
fn a_reset_of_an_address_clears_what_counts_by_its_first_part() {
    let mut server = Server::new(
        "[policies.p]
limits = [{ algorithm = 'fixed_window', depth = 1, limit = 5, period = '1m' }]",
    );
    for key in ["ip:2001:db8::7", "ip:192.0.2.7"] {
        let check = json!({ "policy": "p", "key": key }).to_string();
        assert_eq!(server.post("/v1/check", &check)["remaining"], 4);
        assert_eq!(server.json("DELETE", &std::format!("/v1/keys/p/{key}"), "")["remaining"], 5);
    }
}

#[test]
fn a_block_or_reset_that_fails_is_no_success() {
    let policies = Policies::parse(
        "[policies.p]
on_error = 'open'
allow = ['friend']
limits = [{ algorithm = 'fixed_window', limit = 5, period = '1m' }]",
    )
    .unwrap();
    let policies = policies.into();
    let plan = |method: &str, path: &str, body: &str| {
        let mut exchange = sent(&policies, &Access::OPEN, (method, path), &[]);
        exchange.body(Ok(body.into()), &mut || Some(7)); // if it waits for a body
        planned(exchange).map(|(exchange, _)| exchange)
    };
    let down = || [Outcome::Unavailable("the store is unavailable".into())].to_vec();
    for (method, path, body) in
        [("DELETE", "/v1/keys/p/k", ""), ("POST", "/v1/keys/p/k/block", r#"{"for":1}"#)]
    {
        assert_eq!(decided(plan(method, path, body).unwrap(), down()).status, 503, "{method}");
    }
    assert_eq!(decided(plan("GET", "/v1/keys/p/k", "").unwrap(), down()).status, 200);
    let listed = plan("POST", "/v1/keys/p/friend/block", r#"{"for":1}"#).unwrap_err();
    assert!(listed.status == 400 && listed.body.contains("on the policy's list"), "{listed:?}");
    for path in
        ["/v1/keys/p/a/../b", "/v1/keys/p/a/%2e%2E/b", "/v1/keys/p/.", "/v1/keys/p/../block"]
    {
        assert_eq!(plan("GET", path, "").unwrap_err().status, 400, "{path}");
    }
    assert!(plan("GET", "/v1/keys/p/a%2F..%2Fb", "").is_ok());
}
