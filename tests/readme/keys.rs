//! Which key a request has, as docs/gateway.md says, and that our first examples limit a client that invents keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_gate::{
    JoinedSources, KeyHasher, KeySource, Policies, Policy, RoutePolicy, Table, Timestamp,
};
use tidegate_http::{Exchange, Head, Keyed, Step, key_of};
use tidegate_tests::{blocks, rows};

use crate::read;

const NOW: Timestamp = Timestamp(1_800_000_000_000_000);

/// The key of a request from one address.
fn key(
    policies: &Policies,
    policy: &Policy,
    query: &str,
    headers: &BTreeMap<String, String>,
) -> Option<String> {
    let header = |name: &str| headers.get(name).cloned();
    let client_ip = || "192.0.2.1".parse().ok();
    let (header, client_ip, now) = (&header, &client_ip, NOW);
    let head = Head { query, header, client_ip, now, ..Head::default() };
    key_of(policies.gateway(), policy, &head).ok()
}

#[test]
fn each_row_of_docs_gateway_has_the_key_that_it_says() {
    let text = read("docs/gateway.md");
    let rows = rows(&text, "<!-- each row has this key -->");
    assert_eq!(rows.len(), 45);
    for [source, request, expected] in rows.iter().filter_map(|row| row.first_chunk()) {
        let (mut query, mut headers) = ("", BTreeMap::new());
        for part in request.split("` `") {
            if let Some(fields) = part.strip_prefix('?') {
                query = fields;
                continue;
            }
            let (name, value) = part.split_once(':').unwrap();
            let joined = headers.entry(name.to_lowercase()).or_insert_with(String::new);
            let comma = if joined.is_empty() { "" } else { ", " };
            *joined += &format!("{comma}{}", value.trim());
        }
        let file = format!(
            "[policies.p]\nkey = ['{source}']\nlimits = [{{ algorithm = 'fixed_window', limit = 1, period = '1s' }}]"
        );
        let policies = Policies::parse(&file).unwrap();
        let found = key(&policies, policies.get("p").unwrap(), query, &headers);
        assert_eq!(found.as_deref().unwrap_or("absent"), expected, "{source} {request}");
    }
}

/// Sends requests at one time, each with another value in all sources that a client can invent, and returns how many of
/// them pass all of these policies.
fn passing(policies: &Policies, together: &[&Arc<Policy>]) -> usize {
    let new = || Table::new(64 << 20, KeyHasher::new(0));
    let mut tables: Vec<Table> = together.iter().map(|_| new()).collect();
    (0..INVENTED)
        .filter(|number| {
            let mut grants = together.iter().zip(&mut tables).map(|(policy, table)| {
                let (query, headers) = invented(policy, *number);
                let key = key(policies, policy, &query, &headers).unwrap();
                let random = &mut || u64::try_from(*number).ok();
                let asked = Keyed { key: &key, ..Keyed::default() };
                let mut exchange = Exchange::of_key(policy, &asked, random);
                let Step::Decide([check]) = exchange.step() else { panic!("{exchange:?}") };
                let verdict = table.ask(check.resolved(), NOW, &check.operation()).unwrap();
                verdict.decision.is_allowed()
            });
            grants.all(|grants| grants)
        })
        .count()
}

fn invented(policy: &Policy, number: usize) -> (String, BTreeMap<String, String>) {
    let (mut query, mut headers) = (String::new(), BTreeMap::new());
    for source in policy.key_sources().iter().flat_map(JoinedSources::sources) {
        match source {
            KeySource::Header(name) => _ = headers.insert(name.clone(), number.to_string()),
            KeySource::Cookie(name) => {
                let cookies: &mut String = headers.entry("cookie".into()).or_default();
                *cookies += &format!("{name}={number};");
            }
            KeySource::Query(name) => query += &format!("&{name}={number}"),
            _ => {}
        }
    }
    (query, headers)
}

const INVENTED: usize = 5_000;

#[test]
fn who_invents_keys_is_limited_by_the_first_examples() {
    let first = |document: &str| {
        let text = read(document);
        blocks(&text).into_iter().find(|block| block.text.contains("key = ")).unwrap().text
    };
    let after = |heading: &str| {
        let page = read("docs/gateway.md");
        blocks(page.split_once(heading).unwrap().1)[0].text.clone()
    };
    for (file, text) in [
        ("policies.toml", read("policies.toml")),
        ("template", read("crates/wasm/npm/template/policies.toml")),
        ("docs/gateway.md", first("docs/gateway.md")),
        ("docs/gateway.md, several", after("### Several policies on one request")),
        ("docs/gateway.md, invented keys", after("### Keys that a client can invent")),
    ] {
        let policies = Policies::parse(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
        let routes = policies.gateway().routes();
        for policy in policies.all() {
            assert_eq!(policies.warnings_about(policy), [""; 0], "{file}: {}", policy.name());
            if routes.is_empty() {
                assert!(passing(&policies, &[policy]) <= 1_000, "{file}: {}", policy.name());
            }
        }
        for route in routes {
            let together: Vec<_> = route.policies().iter().map(RoutePolicy::policy).collect();
            assert!(passing(&policies, &together) <= 1_000, "{file}: {route}");
        }
    }
    let middleware = first("crates/wasm/npm/README.md");
    let policies = Policies::parse(middleware.split('`').nth(1).unwrap()).unwrap();
    assert!(passing(&policies, &policies.all().iter().collect::<Vec<_>>()) <= 3, "npm");
    let unlimited = "[policies.p]\nkey = ['header:x-api-key', 'ip']\n\
                     limits = [{ algorithm = 'fixed_window', limit = 3, period = '1m' }]";
    let policies = Policies::parse(unlimited).unwrap();
    assert_eq!(passing(&policies, &[policies.get("p").unwrap()]), INVENTED);
}
