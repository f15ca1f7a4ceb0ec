//! Several policies on one request: all or nothing.

use std::format;
use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

use tidegate_gate::{Id, Operation, Request, Resolved, Timestamp, Verdict};

use super::Gateway;
use crate::{AnswerEnd, Header, Pass, Response, Served};

const NOW: Timestamp = Timestamp(86_400_000_000);
const URL: &str = "https://h/";
const KEY: (&str, &str) = ("x-api-key", "alice");

/// A gateway whose route has the policies `by_address`, with these fields, and `by_key`, which grants one request.
fn gateway(by_address: &str) -> Gateway {
    gateway_with(
        "",
        by_address,
        "limits = [{ algorithm = 'fixed_window', limit = 1, period = '1d' }]",
    )
}

const TWO: &str = "limits = [{ algorithm = 'fixed_window', limit = 2, period = '1d' }]";

fn gateway_with(route: &str, by_address: &str, by_key: &str) -> Gateway {
    Gateway::new(&format!(
        "routes = [{{ match = '/*', policies = ['by_address', 'by_key'], upstream = 'http://u' {route} }}]
         jwt = {{ algorithms = ['HS256'], keys = 'K' }}
         [policies.by_address]
         {by_address}
         [policies.by_key]
         key = ['header:x-api-key', 'jwt:sub']
         {by_key}"
    ))
}

impl Gateway {
    fn operate(&mut self, policy: &str, key: &str, operation: &Operation) -> Verdict {
        let resolved = Resolved::new(self.policies.get(policy).unwrap(), key).unwrap();
        self.server.ask(&resolved, NOW, operation)
    }

    /// What a request would hear from `by_address`.
    fn looks(&mut self) -> Verdict {
        let lease = Some(Id([1, 2]));
        let request = Request { lease, ..Request::of(1) };
        self.operate("by_address", "ip:192.0.2.7", &Operation::Peek(request))
    }

    /// The units that `by_address` has left.
    fn left(&mut self) -> u64 {
        self.operate("by_address", "ip:192.0.2.7", &0.into()).decision.remaining()
    }

    fn serve(&mut self) -> Served {
        self.send("GET", URL, &[KEY])
    }

    #[track_caller]
    fn pass(&mut self) -> Pass {
        match self.serve() {
            Served::Pass(pass) => *pass,
            Served::Response(response) => panic!("{response:?}"),
        }
    }

    #[track_caller]
    fn refusal(&mut self) -> Response {
        match self.serve() {
            Served::Pass(pass) => panic!("{pass:?}"),
            Served::Response(response) => response,
        }
    }

    fn asked(&mut self) -> Vec<(String, Operation)> {
        std::mem::take(&mut self.server.asked)
    }
}

fn field<'f>(headers: &'f [Header], name: &str) -> Vec<&'f str> {
    headers.iter().filter(|header| header.0 == name).map(|header| &*header.1).collect()
}

#[test]
fn a_request_passes_if_every_policy_grants_it_and_hears_of_all_limits() {
    let mut gateway = gateway_with(
        "",
        "limits = [
           { algorithm = 'fixed_window', name = 'burst', limit = 2, period = '1m' },
           { algorithm = 'fixed_window', name = 'day', limit = 9, period = '1d' },
         ]",
        TWO,
    );
    let pass = gateway.pass();
    let policies =
        r#""by_address/burst";q=2;w=60, "by_address/day";q=9;w=86400, "by_key";q=2;w=86400"#;
    assert_eq!(field(&pass.headers, "ratelimit-policy"), [policies]);
    let states =
        r#""by_address/burst";r=1;t=60, "by_address/day";r=8;t=86400, "by_key";r=1;t=86400"#;
    assert_eq!(field(&pass.headers, "ratelimit"), [states]);
    let names: Vec<String> = gateway.asked().into_iter().map(|asked| asked.0).collect();
    assert_eq!(names, ["by_address", "by_key"]);
    let route = gateway.policies.gateway().routes()[0].to_string();
    assert_eq!(route, "/*: by by_address and by_key, to http://u");
}

#[test]
fn a_refusal_is_that_of_one_policy_and_names_it() {
    let mut gateway = gateway(TWO);
    gateway.pass();
    let refused = gateway.refusal();
    assert_eq!((refused.status, field(&refused.headers, "retry-after")), (429, vec!["86400"]));
    assert_eq!(field(&refused.headers, "ratelimit"), [r#""by_key";r=0;t=86400"#]);
    let problem: serde_json::Value = serde_json::from_str(&refused.body).unwrap();
    assert_eq!(problem["policy"], "by_key");
    assert_eq!(problem["violated-policies"], serde_json::json!(["by_key"]));

    gateway.operate("by_address", "ip:192.0.2.7", &1.into());
    gateway.asked();
    let refused = gateway.refusal();
    assert_eq!(field(&refused.headers, "ratelimit"), [r#""by_address";r=0;t=86400"#]);
    assert_eq!(
        gateway.asked().len(),
        1,
        "the second is not asked, and there is nothing to give back"
    );

    let mut denied = gateway_with("", TWO, &format!("{TWO}\ndeny = ['header:x-api-key:alice']"));
    let refused = denied.refusal();
    assert_eq!(refused.status, 403);
    assert!(refused.body.contains(r#""policy":"by_key""#), "{}", refused.body);
    assert_eq!(denied.left(), 2);
}

/// Each kind of policy, which grants two requests at least, is as before after a refusal by the second policy.
#[test]
fn the_first_policy_is_as_before_if_the_second_refuses() {
    for by_address in [
        TWO,
        "limits = [{ algorithm = 'token_bucket', capacity = 5, rate = '5/h' }]",
        "limits = [{ algorithm = 'sliding_window', limit = 5, period = '1h' }]",
        "limits = [{ algorithm = 'sliding_log', rates = ['5/h'] }]",
        "limits = [{ algorithm = 'calendar', limit = 5, period = 'day', timezone = 'UTC' }]",
        "limits = [{ algorithm = 'concurrency', capacity = 2, time_to_live = '1m' }]",
        "limits = [{ algorithm = 'connections', limit = 2, expiry = '1m' }]",
        "limits = [
           { algorithm = 'fixed_window', limit = 5, period = '1h' },
           { algorithm = 'concurrency', capacity = 2, time_to_live = '1m' },
           { algorithm = 'fixed_window', limit = 5, period = '1d', depth = 0 },
         ]",
        "limits = [{ algorithm = 'fixed_window', limit = 5, period = '1h' }]\nreservations = {}",
        "limits = [{ algorithm = 'fixed_window', limit = 5, period = '1h' }]\ncost = 3",
    ] {
        let mut gateway = gateway(by_address);
        gateway.pass();
        let before = gateway.looks();
        for _ in 0..3 {
            assert_eq!(gateway.refusal().status, 429, "{by_address}");
            assert_eq!(gateway.looks(), before, "{by_address}");
        }
    }
}

#[test]
fn a_request_without_the_second_key_charges_nothing() {
    let mut gateway = gateway(TWO);
    let refused = gateway.refuses(URL, &[]);
    assert_eq!(refused.status, 400);
    assert!(refused.body.contains("expected a request with"), "{}", refused.body);
    assert_eq!(gateway.asked(), []);
}

#[test]
fn every_token_is_verified_before_anything_is_decided() {
    let token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let header = ("authorization", token);
    let both = "key = ['jwt:sub', 'ip']";
    let mut gateway = gateway_with("", &format!("{TWO}\n{both}"), TWO);
    assert_eq!(gateway.refuses(URL, &[header]).status, 400, "the second key is missing");
    gateway.server.trusts = None;
    assert_eq!(gateway.refuses(URL, &[header, KEY]).status, 500, "no keys");
    assert_eq!(gateway.asked(), []);
    gateway.server.trusts = Some(true);
    let Served::Pass(_) = gateway.send("GET", URL, &[header]) else { panic!() };
    let keys = gateway.asked();
    assert_eq!(keys.len(), 2);
    assert_eq!(gateway.operate("by_address", "jwt:sub:a", &0.into()).decision.remaining(), 1);
    assert_eq!(gateway.operate("by_key", "jwt:sub:a", &0.into()).decision.remaining(), 1);
}

#[test]
fn a_shadow_gives_back_only_what_it_took() {
    let mut gateway = gateway(&format!("{TWO}\nshadow = true"));
    gateway.operate("by_address", "ip:192.0.2.7", &2.into());
    gateway.pass();
    gateway.asked();
    assert_eq!(gateway.refusal().status, 429);
    assert_eq!(gateway.asked().len(), 2, "the shadow took nothing, so nothing comes back");
    assert_eq!(gateway.left(), 0);

    let mut second = gateway_with("", TWO, &format!("{TWO}\nshadow = true"));
    for _ in 0..2 {
        second.pass();
    }
    assert_eq!(second.left(), 0, "a request that passes is counted");
}

#[test]
fn a_store_that_does_not_answer_decides_by_on_error() {
    let mut closed = gateway(TWO);
    closed.server.away = Some("by_key");
    let refused = closed.refusal();
    assert_eq!(refused.status, 503);
    assert!(refused.body.contains(r#""policy":"by_key""#), "{}", refused.body);
    assert_eq!(closed.left(), 2, "the first got its unit back");

    let mut open = gateway(&format!("{TWO}\non_error = 'open'"));
    open.pass();
    open.server.away = Some("by_address");
    open.asked();
    assert_eq!(open.refusal().status, 429);
    assert_eq!(open.asked().len(), 2, "units that are not known to be taken do not come back");

    let leases = "limits = [{ algorithm = 'concurrency', capacity = 2, time_to_live = '1m' }]";
    let mut open = gateway(&format!("{leases}\non_error = 'open'"));
    open.pass();
    open.server.away = Some("by_address");
    open.asked();
    assert_eq!(open.refusal().status, 429, "also if the undo fails");
    let asked = open.asked();
    assert!(matches!(asked[2].1, Operation::Release(_)), "a lease may be held: {asked:?}");
}

#[test]
fn each_policy_holds_its_own_lease() {
    let leases = "limits = [{ algorithm = 'concurrency', capacity = 2, time_to_live = '3m' }]";
    let mut gateway = gateway_with("", leases, &leases.replace("3m", "6m"));
    let leases = gateway.pass().leases;
    let each: Vec<_> = leases.iter().map(|l| (l.policy.as_str(), l.renew_every.0)).collect();
    assert_eq!(each, [("by_address", 60_000_000), ("by_key", 120_000_000)]);
    assert_ne!(leases[0].name, leases[1].name);
}

#[test]
fn policies_with_reservations_reserve_and_the_others_take_their_own_cost() {
    let reserving = "limits = [{ algorithm = 'fixed_window', limit = 9_000, period = '1d' }]\nreservations = {}";
    let route = ", estimate = 4_000, actual = { header = 'x-tokens' }";
    let mut gateway = gateway_with(route, TWO, reserving);
    let pass = gateway.pass();
    assert_eq!(gateway.left(), 1, "a request is one request");
    let [reservation] = pass.reservations.as_slice() else { panic!("{pass:?}") };
    assert_eq!((reservation.policy.as_str(), reservation.meter.estimate()), ("by_key", 4_000));

    let mut both = gateway_with(route, &format!("{reserving}\ncost = 3"), reserving);
    let pass = both.pass();
    let units: Vec<u64> = pass.reservations.iter().map(|one| one.meter.estimate()).collect();
    assert_eq!((units, pass.leases.len()), (vec![4_000, 4_000], 0));
    let mut meter = pass.reservations[0].meter.clone();
    meter.answered(200, &|name| (name == "x-tokens").then(|| "17".to_string()));
    assert_eq!(meter.finish(AnswerEnd::Whole), 17);
    both.pass();
    both.asked();
    assert_eq!(both.refusal().status, 429);
    assert_eq!(both.left(), 1_000);

    let first = format!("{TWO}\nreservations = {{}}");
    let mut undone = gateway_with(
        ", count_if = { status = 401 }",
        &first,
        "limits = [{ algorithm = 'fixed_window', limit = 1, period = '1d' }]",
    );
    undone.pass();
    undone.asked();
    assert_eq!(undone.refusal().status, 429);
    assert!(matches!(undone.asked()[2].1, Operation::Commit(_, 0)));
    assert_eq!(undone.left(), 1);
}

#[test]
fn a_payer_of_a_reservation_gets_its_units_back() {
    let payers = "limits = [
  { algorithm = 'fixed_window', name = 'plan', limit = 1, period = '1d', payer = true },
  { algorithm = 'fixed_window', name = 'credits', limit = 5, period = '1d', payer = true },
]\nreservations = {}";
    let mut gateway = gateway_with(
        ", count_if = { status = 401 }",
        payers,
        "limits = [{ algorithm = 'fixed_window', limit = 1, period = '1d' }]",
    );
    gateway.pass();
    let before = gateway.looks();
    assert_eq!(gateway.refusal().status, 429);
    assert_eq!(gateway.looks(), before);
}

#[test]
fn cost_and_class_are_for_the_policies_that_know_them() {
    let shed = "limits = [{ algorithm = 'fixed_window', limit = 9, period = '1d' }]";
    let classes = format!("{shed}\nclasses = ['low', 'high']");
    let mut gateway = gateway_with(", cost = 4, class = 'high'", shed, &classes);
    gateway.pass();
    let requests: Vec<(u64, u16)> = gateway
        .asked()
        .into_iter()
        .map(|(_, operation)| match operation {
            Operation::Decide(Request { cost, class, .. }) => (cost, class.0),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(requests, [(4, 0), (4, u16::MAX)], "the last class is never shed");
    let route = gateway.policies.gateway().routes()[0].to_string();
    assert_eq!(route, "/*: by by_address and by_key, of class high, at a cost of 4, to http://u");
}

const BUCKET: &str = "limits = [{ algorithm = 'token_bucket', capacity = 9, rate = '1/s' }]";

/// The policies that were asked, and whether only for a look.
fn names(gateway: &mut Gateway) -> Vec<(String, bool)> {
    let each = gateway.asked().into_iter();
    each.map(|(policy, operation)| (policy, matches!(operation, Operation::Peek(_)))).collect()
}

#[test]
fn a_bucket_is_asked_last() {
    let mut gateway = gateway(BUCKET);
    let pass = gateway.pass();
    assert_eq!(
        field(&pass.headers, "ratelimit"),
        [r#""by_address";r=8;t=1, "by_key";r=0;t=86400"#]
    );
    let [address, key] = ["by_address", "by_key"].map(String::from);
    assert_eq!(names(&mut gateway), [(key.clone(), false), (address, false)]);
    assert!(gateway.refusal().body.contains(r#""policy":"by_key""#));
    assert_eq!(names(&mut gateway), [(key, false)], "the bucket is not asked");
    assert_eq!(gateway.left(), 8);
}

#[test]
fn of_two_buckets_the_one_that_would_refuse_is_asked_first() {
    let one = "limits = [{ algorithm = 'token_bucket', capacity = 1, rate = '1/d' }]";
    let mut gateway = gateway_with("", BUCKET, one);
    let pass = gateway.pass();
    assert_eq!(
        field(&pass.headers, "ratelimit"),
        [r#""by_address";r=8;t=1, "by_key";r=0;t=86400"#]
    );
    let [address, key] = ["by_address", "by_key"].map(String::from);
    let looks = [(address.clone(), true), (key.clone(), true)];
    assert_eq!(
        names(&mut gateway),
        [&looks[..], &[(address, false), (key.clone(), false)]].concat()
    );
    let refused = gateway.refusal();
    assert!(refused.body.contains(r#""policy":"by_key""#), "{}", refused.body);
    assert_eq!(
        names(&mut gateway),
        [&looks[..], &[(key, false)]].concat(),
        "the bucket is not asked"
    );
    assert_eq!(gateway.left(), 8);
}

#[test]
fn a_refusal_counts_for_a_penalty_also_if_it_was_seen_before() {
    let by_key = "limits = [
  { algorithm = 'token_bucket', capacity = 1, rate = '1/d' },
  { algorithm = 'penalty', refusals = 3, within = '1d', duration = '1d' },
]";
    let mut gateway = gateway_with("", BUCKET, by_key);
    gateway.pass();
    let kinds: Vec<bool> =
        (0..4).map(|_| gateway.refusal().body.contains("abnormal-usage")).collect();
    assert_eq!(kinds, [false, false, true, true]);
}

#[test]
fn payers_without_reservations_are_asked_last_also_beside_a_bucket() {
    let payers = "limits = [
  { algorithm = 'fixed_window', name = 'plan', limit = 5, period = '1d', payer = true },
  { algorithm = 'fixed_window', name = 'credits', limit = 5, period = '1d', payer = true },
]";
    let bucket = "limits = [{ algorithm = 'token_bucket', capacity = 1, rate = '1/d' }]";
    let mut gateway = gateway_with("", bucket, payers);
    gateway.pass();
    for _ in 0..3 {
        assert!(gateway.refusal().body.contains(r#""policy":"by_address""#));
    }
    let looked = gateway.operate("by_key", "header:x-api-key:alice", &0.into());
    assert_eq!(looked.limits[0].remaining(), 4, "their units could not come back");
}
