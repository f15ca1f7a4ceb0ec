//! `tidegate check`

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tidegate::gate::{
    Cost, KeySource, Limit, Micros, OnError, Placement, Policies, Policy, check_key,
};
use tidegate::{clock, gate::http};

use super::{PolicyFile, say};

/// Validate the policy file and show it, or take one decision
#[derive(clap::Args)]
#[command(after_help = "\
Exit code: 0 valid (or: the request may pass), 1 the request is refused, 2 an error.

Examples:
  tidegate check --policies policies.toml
  tidegate check --policy login --key user:42 --cost 2 --redis redis://127.0.0.1:6379")]
pub(crate) struct Arguments {
    #[command(flatten)]
    policies: PolicyFile,
    /// Decide by this policy; may be left out if there is only one
    #[arg(long, value_name = "NAME", requires = "key")]
    policy: Option<String>,
    /// Take a decision on this key
    #[arg(long)]
    key: Option<String>,
    /// What the request costs; 0 only looks
    #[arg(long, value_name = "N", requires = "key", allow_negative_numbers = true)]
    cost: Option<u64>,
    /// Decide in this Redis instead of in a fresh store in memory
    #[arg(long, value_name = "URL", requires = "key")]
    redis: Option<String>,
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode> {
    let (policies, _) = arguments.policies.read()?;
    let Some(key) = &arguments.key else {
        for policy in policies.all() {
            say(describe(policy).trim_end())?;
        }
        return Ok(ExitCode::SUCCESS);
    };
    check_key(key)?;
    let index = choose(&policies, arguments.policy.as_deref())?;
    let policy = policies.all().get(index).context("no such policy")?;
    let cost = arguments.cost.unwrap_or(match policy.cost() {
        Cost::Fixed(cost) | Cost::Header { default: cost, .. } => *cost,
        _ => 1,
    });
    let deadline = Duration::from_secs(5);
    let store = super::store(&policies, arguments.redis.as_deref(), deadline, 1)?;
    let verdict = store.decide(&policies, index, key, clock::now(), cost).await?;
    say(&serde_json::to_string(&http::DecisionForm::from(verdict.decision))?)?;
    Ok(if verdict.decision.is_allowed() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn choose(policies: &Policies, name: Option<&str>) -> Result<usize> {
    let names: Vec<&str> = policies.all().iter().map(Policy::name).collect();
    match (name, names.as_slice()) {
        (None, [_]) => Ok(0),
        (None, _) => bail!("--policy: there are several: {}", names.join(", ")),
        (Some(name), _) => policies
            .index_of(name)
            .with_context(|| format!("--policy: found {name:?}, there are: {}", names.join(", "))),
    }
}

/// The policy in words, every quantity exact.
fn describe(policy: &Policy) -> String {
    let mut text =
        format!("{}: {}\n", policy.name(), policy.description().unwrap_or("no description"));
    for limit in policy.limits() {
        let what = match limit.limit {
            Limit::TokenBucket(bucket) => {
                let (units, period) = bucket.rate();
                let each = if units == 1 { String::new() } else { format!("{units} ") };
                let full = span(bucket.period());
                format!(
                    "bursts of {}, then {each}every {}; full after {full}",
                    bucket.capacity(),
                    span(period)
                )
            }
            Limit::FixedWindow(window) => {
                format!("{} in every aligned {}", window.limit(), span(window.period()))
            }
            Limit::SlidingWindow(window) => {
                let segment =
                    Micros(window.period().0 / u64::try_from(window.segments()).unwrap_or(1));
                format!(
                    "{} in {}, slid by {} segments of {}",
                    window.limit(),
                    span(window.period()),
                    window.segments(),
                    span(segment)
                )
            }
            _ => "a limit this version cannot describe".to_owned(),
        };
        text += &format!("  {}: {what}\n", limit.name);
    }
    let sources: Vec<String> = policy
        .key_sources()
        .iter()
        .map(|source| match source {
            KeySource::Header(name) => format!("header {name}"),
            _ => "client address".to_owned(),
        })
        .collect();
    let error = match policy.on_error() {
        OnError::Open => "passes",
        OnError::Closed => "is refused",
    };
    let placement = match policy.placement() {
        Placement::Shard(shards) => format!("in {shards} objects"),
        _ => "in an object of its own".to_owned(),
    };
    text += &format!(
        "  by {}; in an outage a request {error}; on Workers each key {placement}; \
         stored as {} bytes under {:016x}\n",
        sources.join(", else "),
        policy.words() * 8 + 9,
        policy.fingerprint()
    );
    text
}

/// In the largest unit that is exact.
fn span(span: Micros) -> String {
    const UNITS: [(u64, &str); 5] = [
        (86_400_000_000, "d"),
        (3_600_000_000, "h"),
        (60_000_000, "m"),
        (1_000_000, "s"),
        (1_000, "ms"),
    ];
    match UNITS.iter().find(|(micros, _)| span.0.is_multiple_of(*micros)) {
        Some((micros, unit)) => format!("{} {unit}", span.0 / micros),
        None => format!("{} µs", span.0),
    }
}
