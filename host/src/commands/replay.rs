//! `tidegate replay`

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};
use serde::Serialize;
use tidegate::replay::{Backend, BackendKind, DecisionForm, Event, Line, Target, Trace};
use tokio::sync::mpsc;

use super::report::Report;
use super::traces::{self, Interrupts};
use super::{PolicyFile, RedisFiles, say};

/// How many lines are decided together: enough to fill a round trip, few enough to keep in memory.
const CHUNK: usize = 1_000;

/// Replay a recorded trace against a policy
#[derive(clap::Args)]
#[command(after_help = "\
FILE is an access log in common, combined or vhost_combined format, or newline-delimited JSON. It
may be a pipe, and compressed with gzip. Lines are decided in the order of the file, even where
their times go backwards.

A line of an access log is a request of which only the client's address and the time are known, so
the policy's `key` must have the source \"ip\". As in /v1/gate, the key is `ip:` and the address. Of
a proxy in `trusted_proxies`, the last field is read as X-Forwarded-For.

A line of JSON is a check, with the fields that /v1/check takes:
  {\"policy\":\"api\",\"key\":\"user:42\",\"cost\":1,\"now_us\":1431857103000000}
Or it is one of the operations reserve, commit, refund, renew, release, budget, report, peek, reset and block:
  {\"policy\":\"jobs\",\"key\":\"user:42\",\"now_us\":1431857104000000,\"release\":{\"lease\":\"a\"}}
`t_us` is another name of `now_us`.

Examples:
  tidegate replay access.log.gz --policy api
  zcat access.log.*.gz | tidegate replay - --policy api
  tidegate replay trace.jsonl --backend redis --decisions decisions.jsonl")]
pub(crate) struct Arguments {
    /// The trace to replay; `-` is standard input
    file: PathBuf,
    #[command(flatten)]
    policies: PolicyFile,
    #[command(flatten)]
    servers: Servers,
    /// The policy for lines that name none. Optional if the file has only one
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// The backend that decides
    #[arg(long, default_value = "memory")]
    backend: BackendKind,
    /// Write the decision on each line to this file, as JSON
    #[arg(long, value_name = "OUT")]
    decisions: Option<PathBuf>,
}

/// Running servers to use.
#[derive(clap::Args)]
pub(crate) struct Servers {
    /// Use this Redis instead of starting one
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    #[command(flatten)]
    redis_files: RedisFiles,
    /// Use this Worker instead of starting one; it must run with TIDEGATE_TRUST_CALLER_TIME=true
    #[arg(long, value_name = "URL")]
    worker: Option<String>,
    /// The Worker's bearer token; for a trace that resets or blocks keys, the one for administration
    #[arg(long, value_name = "TOKEN", env = "TIDEGATE_TOKEN", hide_env_values = true)]
    token: Option<String>,
}

impl Servers {
    /// # Errors
    /// Returns an error if a server is named that the backend does not use.
    fn are_asked_by(&self, backend: BackendKind) -> Result<()> {
        for (option, url, own) in [
            ("redis", &self.redis, BackendKind::Redis),
            ("worker", &self.worker, BackendKind::Worker),
        ] {
            anyhow::ensure!(
                url.is_none() || backend == own,
                "--{option}: expected --backend {own}, found --backend {backend}"
            );
        }
        Ok(())
    }

    pub(crate) fn target(self, policies: String) -> Target {
        let (redis, redis_tls) = (self.redis, self.redis_files.tls());
        Target { policies, redis, redis_tls, worker: self.worker, token: self.token }
    }
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode> {
    arguments.servers.are_asked_by(arguments.backend)?;
    let (policies, text) = arguments.policies.read()?;
    let bar = traces::progress(
        &arguments.file,
        "{msg} [{bar:40}] {bytes}/{total_bytes} {elapsed} (eta {eta})",
    )?;
    let policy = arguments.policy.as_deref();
    let trace = Trace::open(&arguments.file, &policies, policy, &bar)?;
    let out = match &arguments.decisions {
        Some(path) => {
            let is_stdin = arguments.file == Path::new("-");
            let file = if is_stdin { Path::new("/dev/stdin") } else { &arguments.file };
            let real = |path: &Path| fs::canonicalize(path).ok();
            let inputs = [file, arguments.policies.path()].map(real);
            anyhow::ensure!(
                real(path).is_none() || !inputs.contains(&real(path)),
                "--decisions: expected a file that the replay does not read, found {}",
                path.display()
            );
            let file =
                File::create(path).with_context(|| format!("--decisions {}", path.display()))?;
            Some(BufWriter::new(file))
        }
        None => None,
    };
    let target = arguments.servers.target(text);
    let mut interrupts = Interrupts::new()?; // before a server is started
    let mut backend = Backend::start(arguments.backend, &policies, &target).await?;
    let started = Instant::now();
    let replayed = interrupts.end(replay(&arguments.file, trace, &mut backend, out)).await;
    bar.finish_and_clear();
    let said = replayed.and_then(|report| {
        say(report.text(started.elapsed()).trim_end())?;
        Ok(report)
    });
    traces::clean_up(backend, said).await?.something_was_decided()?;
    Ok(ExitCode::SUCCESS)
}

/// Decides on all lines of the trace in this file.
async fn replay(
    file: &Path,
    trace: Trace,
    backend: &mut Backend,
    mut out: Option<impl Write>,
) -> Result<Report> {
    let mut report = Report::default();
    let mut chunks = chunks(trace);
    while let Some(lines) = chunks.recv().await {
        let lines = lines.with_context(|| file.display().to_string())?;
        let decisions = decide(backend, &lines).await?;
        for (line, decision) in lines.iter().zip(&decisions) {
            report.add(line, decision.as_ref());
            if let Some(out) = &mut out {
                write_decision(out, line, decision.as_ref())?;
            }
        }
    }
    if let Some(mut out) = out {
        out.flush()?;
    }
    Ok(report)
}

/// Reads the lines on a thread of their own: a pipe may keep it waiting, while a signal ends the replay.
fn chunks(mut trace: Trace) -> mpsc::Receiver<io::Result<Vec<Line>>> {
    let (sender, chunks) = mpsc::channel(1);
    thread::spawn(move || {
        loop {
            let lines = read_chunk(&mut trace);
            let is_last = !lines.as_ref().is_ok_and(|lines| lines.len() == CHUNK);
            if sender.blocking_send(lines).is_err() || is_last {
                return;
            }
        }
    });
    chunks
}

fn read_chunk(trace: &mut Trace) -> io::Result<Vec<Line>> {
    let mut lines = Vec::with_capacity(CHUNK);
    while lines.len() < CHUNK
        && let Some(line) = trace.next_line()?
    {
        lines.push(line);
    }
    Ok(lines)
}

/// Decides on the lines. The decision is `None` for a line that cannot be read.
pub(crate) async fn decide(
    backend: &mut Backend,
    lines: &[Line],
) -> Result<Vec<Option<DecisionForm>>> {
    tokio::task::yield_now().await; // a signal may have come
    let events: Vec<Event> = lines.iter().filter_map(|line| line.as_ref().ok()).cloned().collect();
    let mut decisions = backend.decide(&events).await?.into_iter();
    Ok(lines.iter().map(|line| line.as_ref().ok().and_then(|_| decisions.next())).collect())
}

fn write_decision(
    out: &mut impl Write,
    line: &Line,
    decision: Option<&DecisionForm>,
) -> Result<()> {
    #[derive(Serialize)]
    #[serde(untagged)]
    enum Form<'a> {
        Decided {
            allowed: bool,
            remaining: u64,
            retry_after_us: u64,
            reset_after_us: u64,
            #[serde(skip_serializing_if = "Option::is_none")]
            denied: Option<bool>,
        },
        Unreadable {
            error: &'a str,
        },
    }
    let form = match (line, decision) {
        (Ok(event), Some(decision)) => Form::Decided {
            allowed: decision.allowed,
            remaining: decision.remaining,
            retry_after_us: decision.retry_after_us,
            reset_after_us: decision.reset_after_us,
            denied: event.asked.resolved().is_denied().then_some(true),
        },
        (Ok(_), None) => Form::Unreadable { error: "no decision" },
        (Err(reason), _) => Form::Unreadable { error: reason },
    };
    serde_json::to_writer(&mut *out, &form)?;
    Ok(out.write_all(b"\n")?)
}
