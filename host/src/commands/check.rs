//! `tidegate check`

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use super::warn;
use anyhow::{Context, Result, bail};
use serde::Serialize;
use tidegate::clock;
use tidegate::gate::{
    Ask, Bounded, CheckForm, MAX_QUANTITY, OperationError, Policies, Policy, Quoted, describe,
    describe_routes,
};
use tidegate::store::RedisOptions;

use super::{PolicyFile, RedisFiles, calendars, say};

/// Validate the policy file and describe it, or decide on one request
#[derive(clap::Args)]
#[command(
    override_usage = "tidegate check [--policies FILE] [OPTIONS]",
    after_help = "\
Exit codes:
  0  the file is valid; with --key, the request is allowed
  1  the request is refused
  2  an error

Examples:
  tidegate check --policies policies.toml
  tidegate check --policies policies.toml --compile
  tidegate check --policy login --key user:42 --cost 2 --redis redis://127.0.0.1:6379"
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    policies: PolicyFile,
    /// Decide by this policy. Optional if the file has only one
    #[arg(long, value_name = "NAME", requires = "key")]
    policy: Option<String>,
    /// Decide on a request with this key
    #[arg(long)]
    key: Option<String>,
    /// The cost of the request; 0 is a peek, which changes nothing
    #[arg(long, value_name = "N", requires = "key", allow_negative_numbers = true)]
    cost: Option<u64>,
    /// Acquire a lease of this name. Required if the policy limits leases
    #[arg(long, value_name = "NAME", requires = "key")]
    lease: Option<String>,
    /// Write the data of time zones into the policy file first, for Workers and the npm package, which have no time zone database
    #[arg(long, conflicts_with = "key")]
    compile: bool,
    /// How many years ahead --compile writes
    #[arg(long, value_name = "N", default_value_t = 20, requires = "compile", value_parser = clap::value_parser!(u16).range(1..=90))]
    years: u16,
    /// Decide in this Redis instead of in a fresh store in memory
    #[arg(long, value_name = "URL", requires = "key")]
    redis: Option<String>,
    #[command(flatten)]
    redis_files: RedisFiles,
}

#[derive(Serialize)]
struct Shown {
    allowed: bool,
    limit: u64,
    remaining: u64,
    retry_after_us: u64,
    reset_after_us: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    denied: Option<bool>,
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode> {
    let now = clock::now();
    if arguments.compile {
        say(&calendars::compile(arguments.policies.path(), arguments.years, now)?)?;
    }
    let (policies, _) = arguments.policies.read()?;
    let Some(key) = &arguments.key else {
        if let Some(routes) = describe_routes(policies.gateway()) {
            say(&routes)?;
        }
        for policy in policies.all() {
            say(describe(policy).trim_end())?;
            let windows = calendars::describe(policy, now);
            if !windows.is_empty() {
                say(windows.trim_end())?;
            }
            let warnings = policies.warnings_about(policy);
            for warning in warnings.into_iter().chain(calendars::warnings(policy, now)) {
                warn(format!("policies.{}: {warning}", policy.name()));
            }
        }
        return Ok(ExitCode::SUCCESS);
    };
    let policy = choose(&policies, arguments.policy.as_deref())?;
    let cost = arguments.cost.map(|cost| {
        Bounded::new(cost).with_context(|| {
            format!("--cost: expected a whole number from 0 to {MAX_QUANTITY}, found {cost}")
        })
    });
    let check =
        CheckForm { cost: cost.transpose()?, lease: arguments.lease, ..CheckForm::default() };
    let named = check.lease.is_some();
    let asked = Ask::Check(check).resolve(policy, key, &mut || getrandom::u64().ok())?;
    if asked.lease().is_some() && !named {
        bail!("--lease: {}", OperationError::NeedsLease); // the command does not print a random name
    }
    let (deadline, tls) = (Duration::from_secs(5), arguments.redis_files.tls());
    let options = RedisOptions { deadline, tls, ..RedisOptions::default() };
    let store = super::store(&policies, arguments.redis.as_deref(), options, usize::MAX)?;
    let verdict = store.operate(asked.resolved(), clock::now(), asked.operation()).await?;
    let decision = asked.said(verdict).decision;
    let shown = Shown {
        allowed: decision.is_allowed(),
        limit: decision.limit(),
        remaining: decision.remaining(),
        retry_after_us: decision.retry_after().0,
        reset_after_us: decision.reset_after().0,
        denied: asked.resolved().is_denied().then_some(true),
    };
    say(&serde_json::to_string(&shown)?)?;
    Ok(if decision.is_allowed() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn choose<'a>(policies: &'a Policies, name: Option<&str>) -> Result<&'a Arc<Policy>> {
    let names = policies.all().iter().map(|policy| policy.name()).collect::<Vec<_>>().join(", ");
    match (name, policies.all()) {
        (None, [only]) => Ok(only),
        (None, _) => bail!("--policy: expected one of {names}; found none"),
        (Some(name), _) => policies
            .get(name)
            .with_context(|| format!("--policy: expected one of {names}; found {}", Quoted(name))),
    }
}
