//! A description of a policy for people. Every quantity is exact.

#[cfg(test)]
mod tests;

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Display;

use crate::decide::{Limits, OnChange, Record};
use crate::key::{Depth, Pattern};
use crate::limit::NamedLimit;
use crate::policy::{Gateway, JoinedSources, KeySource, Placement, Policy};
use crate::state::blob;

/// Describes a policy in sentences, each on a line. They name the keys of overrides and lists.
#[must_use]
pub fn describe(policy: &Policy) -> String {
    let mut rules = String::new();
    for (pattern, own) in policy.overrides() {
        let stored = stored(policy, own);
        rules.push_str(&format!(
            "  {pattern} has its own limits, stored as {stored}:\n{}",
            limits(own, "    ")
        ));
    }
    for (word, list) in lists(policy) {
        if !list.is_empty() {
            rules.push_str(&format!("  {word}: {}\n", joined(list, ", ")));
        }
    }
    sentences(policy, &rules)
}

/// [`describe`]s a policy for callers that may not know keys: overrides and lists are only counted.
#[must_use]
pub fn describe_without_keys(policy: &Policy) -> String {
    let overrides = ("keys or patterns with their own limits", policy.overrides().len());
    let lists = lists(policy).map(|(word, list)| (word, list.len()));
    let counts = [overrides].into_iter().chain(lists).filter(|(_, count)| *count > 0);
    let rules = counts.map(|(word, count)| format!("  {word}: {count}\n"));
    sentences(policy, &rules.collect::<String>())
}

fn lists(policy: &Policy) -> [(&'static str, &[Pattern]); 2] {
    [("always denied", policy.denied()), ("always allowed", policy.allowed())]
}

/// The sentences, with those about overrides and lists.
fn sentences(policy: &Policy, rules: &str) -> String {
    let description = policy.description().unwrap_or("no description");
    let mut text = format!("{}: {}\n", policy.name(), printable(description));
    text.push_str(&limits(policy.limits(), "  "));
    text.push_str(rules);
    let sources = policy.key_sources().iter().map(sources);
    let outage = policy.describe_outage();
    let placement = match policy.placement() {
        Placement::Shard(shards) => format!("in {shards} objects"),
        _ => "in its own object".to_owned(),
    };
    match policy.on_change() {
        OnChange::Keep => {}
        OnChange::Reset => text.push_str("  an edit of the limits starts each key afresh\n"),
        OnChange::Proportional => {
            text.push_str("  an edit of the limits keeps the share that was used\n");
        }
    }
    for words in policy
        .describe_nodes()
        .into_iter()
        .chain(policy.describe_persistence())
        .chain(policy.describe_reservations())
    {
        text.push_str(&format!("  {words}\n"));
    }
    if policy.is_shadow() {
        text.push_str("  in shadow: refusals are reported, and every request passes\n");
    }
    text.push_str(&format!(
        "  by {}; {outage}; on Workers each key {placement}; stored as {}\n",
        joined(&sources.collect::<Vec<_>>(), ", else "),
        stored(policy, policy.limits()),
    ));
    text
}

/// The text with its control characters escaped: a terminal would obey them.
fn printable(text: &str) -> String {
    let escaped = |char: char| match char.is_control() {
        true => char.escape_debug().to_string(),
        false => char.to_string(),
    };
    text.chars().map(escaped).collect()
}

fn sources(joined: &JoinedSources) -> String {
    let words = joined.sources().iter().map(|source| match source {
        KeySource::Ip => "client address".to_owned(),
        KeySource::Country => "country".to_owned(),
        KeySource::Header(name) => format!("header {name}"),
        KeySource::Cookie(name) => format!("cookie {name}"),
        KeySource::Query(name) => format!("field {name} of the query"),
        KeySource::Jwt(claim) => format!("verified claim {claim}"),
        KeySource::UnverifiedJwt(claim) => format!("unverified claim {claim}"),
    });
    words.collect::<Vec<_>>().join(" with ")
}

/// The routes of a gateway, if there are any. Only a Worker is a gateway: a host serves the decision API alone.
#[must_use]
pub fn describe_routes(gateway: &Gateway) -> Option<String> {
    let routes = gateway.routes().iter().map(|route| format!("\n  {route}"));
    let routes = Some(routes.collect::<String>()).filter(|routes| !routes.is_empty())?;
    let api = match gateway.api_path() {
        Some(path) => format!("a Worker serves the decision API under {path}"),
        None => "a Worker does not serve the decision API".to_owned(),
    };
    let health = gateway.health_path().map(|path| format!("\n  the gateway's health is at {path}"));
    Some(format!("routes{routes}\n  {api}{}", health.unwrap_or_default()))
}

/// The size of each stored record, and the end of its name.
fn stored(policy: &Policy, limits: &Limits) -> String {
    let record = |record: &Record| {
        let size = |word| blob::encode(policy, record, &vec![word; record.words()]).len();
        let (least, most) = (size(0), size(1)); // a large state is stored without its zeros
        let at_most = if least < most { "at most " } else { "" };
        format!("{at_most}{most} bytes under {:016x}", record.identity())
    };
    joined(&limits.records().iter().map(record).collect::<Vec<_>>(), " and ")
}

fn limits(limits: &Limits, indent: &str) -> String {
    let line = |named: &NamedLimit| {
        let shared = match named.depth {
            Depth::Whole => String::new(),
            Depth::Parts(0) => ", all keys together".to_owned(),
            Depth::Parts(1) => ", by the first part of the key".to_owned(),
            Depth::Parts(parts) => format!(", by the first {parts} parts of the key"),
        };
        let soft = named.describe_softness();
        format!("{indent}{}: {}{shared}{soft}\n", named.name, named.limit.describe())
    };
    limits.iter().map(line).collect()
}

fn joined(items: &[impl Display], separator: &str) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(separator)
}
