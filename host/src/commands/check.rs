//! `tidegate check`

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tidegate::clock;
use tidegate::gate::{Cost, Policies, Policy, check_key, http};

use super::describe::describe;
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
    let verdict = store.operate(&policies, index, key, clock::now(), cost).await?;
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
