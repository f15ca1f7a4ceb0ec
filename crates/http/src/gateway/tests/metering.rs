//! Costs that only the answer tells, by the routes of a policy file.

use std::format;
use std::string::ToString;
use std::vec::Vec;

use tidegate_gate::{Operation, Timestamp, Verdict};

use super::Gateway;
use crate::{AnswerEnd, BodyError, MAX_BODY_BYTES, Reservation, Served};

const KEY: (&str, &str) = ("x-api-key", "alice");
const URL: &str = "https://h/v1/chat";

/// A gateway whose route has these fields, by a policy of 10,000 units a day.
fn gateway(fields: &str) -> Gateway {
    gateway_with(fields, "")
}

fn gateway_with(fields: &str, policy: &str) -> Gateway {
    Gateway::new(&format!(
        "routes = [{{ match = '/*', policy = 'tokens', upstream = 'http://u', {fields} }}]
[policies.tokens]
key = ['header:x-api-key']
limits = [{{ algorithm = 'fixed_window', limit = 10_000, period = '1d' }}]
reservations = {{}}
{policy}"
    ))
}

const FIELD: &str = "estimate = { field = ['max_completion_tokens', 'max_tokens'], times = ['n', 'best_of'], otherwise = 700 }, actual = { field = 'n' }";

impl Gateway {
    /// The reservation of a request with this body.
    #[track_caller]
    fn reserves(
        &mut self,
        headers: &[(&str, &str)],
        body: Result<Vec<u8>, BodyError>,
    ) -> Reservation {
        match self.send_body("POST", URL, headers, body) {
            Served::Pass(mut pass) => pass.reservations.remove(0),
            Served::Response(response) => panic!("{response:?}"),
        }
    }

    /// How many units a request reserves whose body is this text.
    #[track_caller]
    fn estimates(&mut self, body: &str) -> u64 {
        let reservation = self.reserves(&[KEY], Ok(body.into()));
        self.commits(reservation, 0);
        self.server.reserved.take().unwrap()
    }

    fn commits(&mut self, reservation: Reservation, units: u64) -> Verdict {
        let Reservation { policy, key, id, .. } = reservation;
        let policy = self.policies.get(&policy).unwrap();
        let resolved = tidegate_gate::Resolved::new(policy, &key).unwrap();
        let operation = Operation::Commit(resolved.lease_id(&id), units);
        self.server.ask(&resolved, Timestamp(86_400_000_000), &operation)
    }
}

#[test]
fn a_request_reserves_its_estimate_and_commits_what_the_answer_says() {
    let mut gateway = gateway("estimate = 4_000, actual = { field = 'usage.total_tokens' }");
    let first = gateway.reserves(&[KEY], Ok(Vec::new()));
    let second = gateway.reserves(&[KEY], Ok(Vec::new()));
    assert_eq!((first.policy.as_str(), first.key.as_str()), ("tokens", "header:x-api-key:alice"));
    assert_ne!(first.id, second.id);
    let refused = gateway.send("GET", URL, &[KEY]);
    assert!(
        matches!(refused, Served::Response(response) if response.status == 429),
        "8,000 are held"
    );

    let mut meter = first.meter.clone();
    meter.answered(200, &|name| (name == "content-type").then(|| "application/json".to_string()));
    assert!(meter.reads());
    meter.push(b"{\"usage\":{\"total_tokens\":1212}}");
    let units = meter.finish(AnswerEnd::Whole);
    let verdict = gateway.commits(first, units);
    assert_eq!(verdict.decision.remaining(), 10_000 - 1_212 - 4_000);
    let units = second.meter.clone().finish(AnswerEnd::CutOff);
    assert_eq!((units, gateway.commits(second, units).decision.remaining()), (4_000, 4_788));
}

#[test]
fn an_estimate_is_a_field_of_the_body() {
    let mut gateway = gateway(FIELD);
    assert_eq!(gateway.estimates("{\"max_tokens\":300}"), 300);
    assert_eq!(gateway.estimates("{\"max_tokens\":300,\"max_completion_tokens\":400}"), 400);
    assert_eq!(gateway.estimates("{\"messages\":[{\"max_tokens\":300}]}"), 700);
    assert_eq!(
        gateway.estimates("{\"max_completion_tokens\":400,\"max_tokens\":1}"),
        400,
        "the largest"
    );
    assert_eq!(
        gateway.estimates("{\"max_tokens\":300,\"max_tokens\":1}"),
        300,
        "a server may read either"
    );
    assert_eq!(gateway.estimates("{\"max_tokens\":3,\"n\":4,\"best_of\":5}"), 15);
    assert_eq!(gateway.estimates("{\"n\":2,\"max_tokens\":null}"), 1_400);
    assert_eq!(gateway.estimates("no json"), 700);
    assert_eq!(gateway.estimates("{\"max_tokens\":0}"), 1, "a reservation takes something");
    let start = "{\"max_tokens\":300}";
    let longest = start.to_string() + &" ".repeat(MAX_BODY_BYTES - start.len());
    assert_eq!(gateway.estimates(&longest), 300);
    let beyond = gateway.send_body("POST", URL, &[KEY], Ok(b"{\"max_tokens\":10001}".to_vec()));
    assert!(matches!(beyond, Served::Response(response) if response.status == 400));
    let Served::Response(keyless) = gateway.send("POST", URL, &[]) else { panic!() };
    assert_eq!(keyless.status, 400);
}

/// What a client could else pay less for than it uses.
#[test]
fn a_body_that_does_not_tell_its_cost_is_refused() {
    let mut gateway = gateway(FIELD);
    let long = [&b"{\"max_tokens\":9}"[..], &[b' '; MAX_BODY_BYTES]].concat();
    let utf_16 = "{\"max_tokens\":9}".encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (header, body, status) in [
        (None, Ok(long), 413),
        (None, Err(BodyError::TooLarge(400_000)), 413),
        (None, Err(BodyError::Incomplete), 400),
        (Some(("content-length", "262145")), Ok(Vec::new()), 413),
        (Some(("content-encoding", "gzip")), Ok(Vec::new()), 415),
        (Some(("content-encoding", "identity")), Ok(b"{}".to_vec()), 0),
        (None, Ok(utf_16), 400),
        (None, Ok(b"{\"max_tokens\":\"9000\"}".to_vec()), 400),
        (None, Ok(b"{\"max_tokens\":9e3}".to_vec()), 400),
        (None, Ok(b"{\"max_tokens\":9000.0}".to_vec()), 400),
        (None, Ok(b"{\"max_tokens\":9,\"n\":128.0}".to_vec()), 400),
        (None, Ok(b"{\"a\":{\"n\":1.5},\"stop\":\"n\",\"n\":null}".to_vec()), 0),
    ] {
        let headers: Vec<_> = [KEY].into_iter().chain(header).collect();
        let found = match gateway.send_body("POST", URL, &headers, body.clone()) {
            Served::Response(response) => response.status,
            Served::Pass(_) => 0,
        };
        assert_eq!(found, status, "{header:?} {:?}", body.map(|body| body.len()));
    }
}

/// Neither the client's `max_tokens` nor its silence about the usage is the price.
#[test]
fn the_first_example_of_docs_llm_charges_what_a_stream_could_cost() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/llm.md");
    let page = std::fs::read_to_string(page).unwrap();
    let file = page.split("```toml").nth(1).unwrap().split("```").next().unwrap();
    let mut gateway = Gateway::new(file);
    let body = "{\"stream\":true,\"max_tokens\":1,\"n\":128}";
    let url = "https://h/v1/chat/completions";
    let Served::Pass(mut pass) = gateway.send_body("POST", url, &[], Ok(body.into())) else {
        panic!()
    };
    let mut meter = pass.reservations.remove(0).meter;
    meter.answered(200, &|name| (name == "content-type").then(|| "text/event-stream".into()));
    meter.push(b"data: {\"usage\":null}\n\ndata: [DONE]\n\n");
    assert_eq!(meter.finish(AnswerEnd::Whole), 10 + 128, "40 bytes and 128 answers");
}

#[test]
fn an_estimate_is_a_header_or_the_length_of_the_body_or_a_sum() {
    let rest = "actual = { header = 'x-used' }";
    let mut by_header =
        gateway(&format!("estimate = {{ header = 'X-Estimate', otherwise = 9 }}, {rest}"));
    let of = |gateway: &mut Gateway, header: (&str, &str)| {
        let reservation = gateway.reserves(&[KEY, header], Ok(b"12345".to_vec()));
        gateway.commits(reservation, 0);
        gateway.server.reserved.take()
    };
    assert_eq!(of(&mut by_header, ("x-estimate", "55")), Some(55));
    assert_eq!(of(&mut by_header, ("x-estimate", "5.5")), Some(9));
    let mut by_length = gateway(&format!("estimate = {{ bytes = 4 }}, {rest}"));
    assert_eq!(of(&mut by_length, ("content-length", "17")), Some(5));
    assert_eq!(of(&mut by_length, ("transfer-encoding", "chunked")), Some(2), "5 bytes came");
    // input + output × 5
    let sum =
        "estimate = [100, { bytes = 4 }, { field = 'max_tokens', weight = 5, otherwise = 1 }]";
    let mut summed = gateway(&format!("{sum}, {rest}"));
    let body = "{\"max_tokens\":20}";
    assert_eq!(
        summed.estimates(body),
        100 + 5 + 100,
        "the length of a body that was read is known"
    );
    let mut by_cost = gateway(&format!("cost = 7, {rest}"));
    assert_eq!(of(&mut by_cost, ("x-estimate", "55")), Some(7), "the cost is the estimate");
}

#[test]
fn a_lease_and_a_reservation_are_held_together() {
    let concurrency = "limits = [
  { algorithm = 'fixed_window', limit = 10_000, period = '1d' },
  { algorithm = 'concurrency', capacity = 1, time_to_live = '3m' },
]";
    let file = format!(
        "routes = [{{ match = '/*', policy = 'tokens', upstream = 'http://u', cost = 1, count_if = {{ status = 401 }} }}]
[policies.tokens]
key = ['header:x-api-key']
{concurrency}
reservations = {{}}"
    );
    let mut gateway = Gateway::new(&file);
    let Served::Pass(pass) = gateway.send("POST", URL, &[KEY]) else { panic!() };
    let (lease, reservation) = (&pass.leases[0], pass.reservations[0].clone());
    assert_eq!(lease.name, reservation.id);
    assert!(matches!(gateway.send("POST", URL, &[KEY]), Served::Response(_)));
    gateway.commits(reservation, 1);
    assert!(
        matches!(gateway.send("POST", URL, &[KEY]), Served::Pass(_)),
        "the commit has released it"
    );
}

#[test]
fn a_request_that_is_not_counted_has_nothing_to_commit() {
    let mut listed = gateway_with(FIELD, "allow = ['header:x-api-key:alice']");
    let Served::Pass(pass) = listed.send("POST", URL, &[KEY]) else { panic!() };
    assert_eq!(pass.reservations, []);
    let mut shadow = gateway_with("estimate = 10_000, actual = { field = 'n' }", "shadow = true");
    let held: Vec<bool> = (0..2)
        .map(|_| match shadow.send("POST", URL, &[KEY]) {
            Served::Pass(pass) => !pass.reservations.is_empty(),
            Served::Response(response) => panic!("{response:?}"),
        })
        .collect();
    assert_eq!(held, [true, false], "only the shadow lets the second pass");
    let mut open = gateway_with(FIELD, "on_error = 'open'");
    open.server.fails = true;
    let unknown = open.reserves(&[KEY], Ok(b"{\"max_tokens\":300}".to_vec()));
    assert_eq!(unknown.meter.finish(AnswerEnd::CutOff), 300, "it may hold them");
}
