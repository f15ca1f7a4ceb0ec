//! The contract of the loop, kept and broken.

use std::string::ToString;
use std::vec::Vec;

use proptest::prelude::*;

use super::{Server, policies, sent};
use crate::{Access, Exchange, NoKeys, Outcome, Served, Step, without_revisions};

/// The requests, each of which waits first for another input.
const REQUESTS: [(&str, &str); 6] = [
    ("POST", "/v1/check"),
    ("GET", "/v1/gate?policy=api&key=k"),
    ("PUT", "/v1/policies"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/v1/top"),
];

fn begun(request: usize) -> Exchange {
    let tokens = crate::Tokens { administration: Some("admin".into()), ..Default::default() };
    let access = Access::new(&policies(), tokens).unwrap();
    sent(&policies(), &access, REQUESTS[request], &[("authorization", "Bearer admin")])
}

fn hand_in(exchange: &mut Exchange, input: u8) {
    match input {
        0 => exchange.body(Ok(br#"{"policy":"api","key":"k"}"#.to_vec()), &mut || Some(7)),
        1 => exchange.verified(Err(NoKeys), &mut || Some(7)),
        2 => exchange.decided([Outcome::Unavailable("away".to_string())].into()),
        3 => exchange.changed(without_revisions()),
        4 => exchange.probed(Ok(Vec::new())),
        _ => exchange.watched(Ok("{}".to_string())),
    }
}

/// The number of the input that the step asks for; `None` at the end.
fn asked(exchange: &mut Exchange) -> Option<u8> {
    match exchange.step() {
        Step::Body | Step::Copy => Some(0),
        Step::Verify(_) => Some(1),
        Step::Decide(_) => Some(2),
        Step::Change(_) => Some(3),
        Step::Probe => Some(4),
        Step::Watch { .. } => Some(5),
        Step::Done(_) => None,
    }
}

proptest! {
    #[test]
    fn an_input_that_no_step_asked_for_changes_nothing(
        request in 0..REQUESTS.len(),
        inputs in prop::collection::vec(0..6_u8, 0..20),
    ) {
        let mut exchange = begun(request);
        let mut expected = asked(&mut exchange);
        for input in inputs {
            hand_in(&mut exchange, input);
            let Some(own) = expected else { break };
            let found = asked(&mut exchange);
            if input != own {
                prop_assert_eq!(found, expected);
            }
            expected = found;
        }
    }
}

#[test]
fn a_step_stays_the_same_until_its_result_comes() {
    let mut exchange = begun(0);
    assert_eq!((asked(&mut exchange), asked(&mut exchange)), (Some(0), Some(0)));
    hand_in(&mut exchange, 0);
    assert_eq!((asked(&mut exchange), asked(&mut exchange)), (Some(2), Some(2)));
}

#[test]
fn the_end_comes_once() {
    let mut exchange = begun(3);
    let ends: Vec<u16> = (0..3)
        .map(|_| match exchange.step() {
            Step::Done(Served::Response(response)) => response.status,
            step => panic!("{step:?}"),
        })
        .collect();
    assert_eq!(ends, [200, 500, 500]);
}

#[test]
fn outcomes_that_are_too_few_or_too_many_grant_nothing() {
    for outcomes in [0, 2] {
        let mut server = Server::new(super::POLICIES);
        let mut exchange = begun(1);
        let Step::Decide(checks) = exchange.step() else { panic!() };
        let granted = server.decide(&checks[0]);
        exchange.decided(std::vec![granted; outcomes]);
        assert_eq!(super::answer(exchange).status, 500, "{outcomes}");
    }
}
