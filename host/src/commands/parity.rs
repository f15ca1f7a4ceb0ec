//! `tidegate parity`

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use indicatif::ProgressBar;
use tidegate::gate::Policies;
use tidegate::replay::{Backend, BackendKind, DecisionForm, Event, Line, Target, Trace};

use super::replay::{Servers, decide};
use super::report::Report;
use super::traces::{self, Interrupts};
use super::{PolicyFile, say};

/// How many differences the command shows.
const SHOWN: usize = 5;
const CHUNK: usize = 2_000;

/// Replay a trace on every backend and compare the decisions line by line
#[derive(clap::Args)]
#[command(after_help = "\
Starts a private Redis and a private workerd, unless --redis and --worker name running ones. Run
`cargo xtask build` first: it builds the Worker and the guest that this command runs.

Exit codes:
  0  all backends agree
  1  they differ
  2  an error

Example:
  tidegate parity access.log.gz --policy api")]
pub(crate) struct Arguments {
    /// The trace, in one of the formats of `tidegate replay`; `-` is standard input
    file: PathBuf,
    #[command(flatten)]
    policies: PolicyFile,
    #[command(flatten)]
    servers: Servers,
    /// The policy for lines that name none. Optional if the file has only one
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
}

type Decisions = Vec<Option<DecisionForm>>;

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode> {
    let (policies, text) = arguments.policies.read()?;
    let lines = read(&arguments, &policies)?;
    let target = arguments.servers.target(text);
    let mut interrupts = Interrupts::new()?; // before a server is started
    let mut all: Vec<Decisions> = Vec::new();
    for kind in BackendKind::ALL {
        let started = Instant::now();
        let decisions = replay(kind, &policies, &target, &lines, &mut interrupts).await?;
        say(&format!("{kind:<9} {} decisions in {:.1?}", decisions.len(), started.elapsed()))?;
        all.push(decisions);
    }
    let [memory, others @ ..] = all.as_slice() else { anyhow::bail!("no backend") };
    let mut report = Report::default();
    for (line, decision) in lines.iter().zip(memory) {
        report.add(line, decision.as_ref());
    }
    let summary = report.text(std::time::Duration::ZERO);
    say(summary.lines().next().unwrap_or_default())?;
    report.something_was_decided()?;
    let mismatches = compare(&policies, &target, &lines, memory, others, &mut interrupts).await?;
    let names = BackendKind::ALL.map(|kind| kind.to_string()).join(", ");
    say(&format!("mismatches {mismatches} of {} across {names}", lines.len()))?;
    Ok(if mismatches == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn read(arguments: &Arguments, policies: &Policies) -> Result<Vec<Line>> {
    let bar = traces::progress(&arguments.file, "{msg} [{bar:40}] {bytes}/{total_bytes}")?;
    let policy = arguments.policy.as_deref();
    let mut trace = Trace::open(&arguments.file, policies, policy, &bar)?;
    let mut lines = Vec::new();
    while let Some(line) =
        trace.next_line().with_context(|| arguments.file.display().to_string())?
    {
        lines.push(line);
    }
    bar.finish_and_clear();
    Ok(lines)
}

async fn replay(
    kind: BackendKind,
    policies: &Policies,
    target: &Target,
    lines: &[Line],
    interrupts: &mut Interrupts,
) -> Result<Decisions> {
    let mut backend = Backend::start(kind, policies, target).await.context(kind)?;
    let decisions = interrupts.end(decide_all(kind, &mut backend, lines)).await;
    traces::clean_up(backend, decisions).await.context(kind)
}

async fn decide_all(kind: BackendKind, backend: &mut Backend, lines: &[Line]) -> Result<Decisions> {
    let bar = ProgressBar::new(u64::try_from(lines.len())?).with_style(
        indicatif::ProgressStyle::with_template(
            "{msg:9} [{bar:40}] {pos}/{len} {per_sec} (eta {eta})",
        )?,
    );
    bar.set_message(kind.to_string());
    let mut decisions = Vec::with_capacity(lines.len());
    for chunk in lines.chunks(CHUNK) {
        decisions.extend(decide(backend, chunk).await?);
        bar.inc(u64::try_from(chunk.len())?);
    }
    bar.finish_and_clear();
    Ok(decisions)
}

/// Counts the lines on which some backend does not answer as memory does, and shows the first of them.
async fn compare(
    policies: &Policies,
    target: &Target,
    lines: &[Line],
    memory: &Decisions,
    others: &[Decisions],
    interrupts: &mut Interrupts,
) -> Result<u64> {
    let mut mismatches = 0_u64;
    let mut shown = 0;
    for (number, (line, expected)) in lines.iter().zip(memory).enumerate() {
        let differs = |decisions: &Decisions| decisions.get(number) != Some(expected);
        if !others.iter().any(differs) {
            continue;
        }
        mismatches += 1;
        let Ok(event) = line else { continue };
        if shown < SHOWN {
            shown += 1;
            let (key, at, ask) = (&event.key, event.at.0, &event.ask);
            say(&format!("line {}: {key:?} at {at} us: {ask}", number + 1))?;
            let before = lines.get(..number).unwrap_or_default();
            let mut show = async |kind, decision| {
                show(policies, target, before, event, (kind, decision), interrupts).await
            };
            show(BackendKind::Memory, expected.as_ref()).await?;
            for (kind, decisions) in BackendKind::ALL.into_iter().skip(1).zip(others) {
                if differs(decisions) {
                    let found = decisions.get(number).and_then(Option::as_ref);
                    show(kind, found).await?;
                }
            }
        }
    }
    Ok(mismatches)
}

/// Shows a backend's decision and the state it was made on. The state comes from replaying the earlier
/// lines of the key once more.
async fn show(
    policies: &Policies,
    target: &Target,
    before: &[Line],
    event: &Event,
    (kind, decision): (BackendKind, Option<&DecisionForm>),
    interrupts: &mut Interrupts,
) -> Result<()> {
    let mut backend = Backend::start(kind, policies, target).await?;
    let shown = interrupts.end(show_state(&mut backend, before, event, kind, decision)).await;
    traces::clean_up(backend, shown).await
}

async fn show_state(
    backend: &mut Backend,
    before: &[Line],
    event: &Event,
    kind: BackendKind,
    decision: Option<&DecisionForm>,
) -> Result<()> {
    let same_key = |other: &&Event| other.asked.resolved() == event.asked.resolved();
    let events: Vec<Event> =
        before.iter().filter_map(|line| line.as_ref().ok()).filter(same_key).cloned().collect();
    backend.decide(&events).await?;
    say(&format!("  {kind:<9} state {}", backend.state(event).await?))?;
    match decision {
        Some(decision) => say(&format!("  {kind:<9} says  {}", serde_json::to_string(decision)?)),
        None => say(&format!("  {kind:<9} says  no decision")),
    }
}
