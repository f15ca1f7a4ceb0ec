//! `tidegate serve`

mod prepared;

use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;

use anyhow::{Context, Result};
use tidegate::serve::{Bounds, Reload, Service, Watch, serve};
use tidegate::store::{Redis, Store};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};

use super::log::{self, LogFormat, LogLevel};
use super::values::{Size, size, whole};
use super::{PolicyFile, RedisFiles, say};
pub(super) use prepared::prepare;
use prepared::{Prepared, beside, lock};

/// Serve the decision API over HTTP
#[derive(clap::Args)]
#[command(
    override_usage = "tidegate serve [--policies FILE] [OPTIONS]",
    after_help = "\
Calls:
  POST   /v1/check                           decide on a request, or on several
  GET    /v1/gate?policy=…&key=…             for proxies: 204, 429 or 503
  POST   /v1/admit                           for middleware: decide, and word the headers of the response
  POST   /v1/leases                          acquire a lease
  PUT    /v1/leases/{lease}                  renew a lease
  DELETE /v1/leases/{lease}?policy=…&key=…   release a lease
  POST   /v1/reservations                    hold units for a request whose cost is known later
  POST   /v1/reservations/{id}/commit        say what a reservation has really cost
  POST   /v1/reservations/{id}/release       give the units of a reservation back
  POST   /v1/refund                          give units back that were not used
  GET    /v1/keys/{policy}/{key}             show whether a request would pass, and when
  POST   /v1/explain                         say in words whether a request would pass, and why
  DELETE /v1/keys/{policy}/{key}             reset a key; needs the token for administration
  POST   /v1/keys/{policy}/{key}/block       block a key for a time; needs it too
  POST   /v1/budget                          get units to spend without asking
  POST   /v1/report                          report load, and learn which fraction to refuse
  GET    /v1/policies                        show the policies in force
  PUT    /v1/policies                        put another file in force; needs the token for administration
  POST   /v1/policies/restore                put an earlier file in force again; needs it too
  GET    /v1/policies/history                list the files that were put in force; needs it too
  GET    /v1/policies/file                   show a file as it was written; needs it too
  GET    /v1/overrides                       list the overrides of one key that have not ended; needs it too
  PUT    /v1/overrides/{policy}/{key}        give a key other limits until a time; needs it too
  DELETE /v1/overrides/{policy}/{key}        end that; needs it too
  GET    /v1/top                             list the keys that were refused most; keys=clear needs it too
  GET    /v1/status                          show decisions, refusals, policies in words, and the store; the same
  GET    /metrics                            show what the server has counted, for Prometheus
  GET    /healthz                            show that the server runs; needs no token
  GET    /readyz                             show whether the server can decide: 200 or 503; needs no token

A flag comes before its environment variable (TIDEGATE_ and its name, as TIDEGATE_MAX_MEMORY), that before the file of --config,
and that before the default. `tidegate config` shows what holds and where it comes from.

SIGHUP reads the policy file and the certificate again. The server also reads them when they change.

Examples:
  tidegate serve
  tidegate serve --config tidegate.toml
  TIDEGATE_TOKEN=secret tidegate serve --listen 0.0.0.0:8080 --redis redis://127.0.0.1:6379
  TIDEGATE_TOKEN=secret tidegate serve --listen 0.0.0.0:8443 --tls-cert cert.pem --tls-key key.pem
  tidegate serve --listen 127.0.0.1:8080 --listen '[::1]:8080'
  tidegate serve --redis rediss://redis.example.net:6379 --redis-ca ca.pem
  curl http://127.0.0.1:8080/v1/check -d '{\"policy\":\"login\",\"key\":\"user:42\"}'"
)]
pub(crate) struct Arguments {
    /// Read options from this TOML file: `NAME = VALUE`, with the names of the flags
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    policies: PolicyFile,
    /// Where the files are kept that `PUT /v1/policies` has put in force; by default beside the policy file, with
    /// `.revisions` after its name
    #[arg(long, value_name = "FILE")]
    revisions: Option<PathBuf>,
    /// The address or name, and the port to listen on. Several are several flags, texts with commas in the variable, and a list
    /// in the file
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', default_value = "127.0.0.1:8080")]
    listen: Vec<String>,
    /// Serve over TLS with this certificate: a PEM file, with the certificates between it and the CA
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key of --tls-cert: a PEM file without a password
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Keep states in this Redis instead of in memory: redis://HOST, redis+cluster://HOST,HOST or
    /// redis+sentinel://HOST,HOST/MASTER; rediss… over TLS
    #[arg(long, value_name = "URL", hide_env_values = true)]
    redis: Option<String>,
    /// How long Redis may be silent after a question, in ms; then the policy's `on_error` decides
    #[arg(long, value_name = "MS", requires = "redis", default_value_t = 250, value_parser = whole::<u64>(1..=60_000))]
    redis_deadline: u64,
    /// How far the clocks of Redis and all hosts may differ, in ms; states are kept this much longer
    #[arg(long, value_name = "MS", requires = "redis", default_value_t = 10_000, value_parser = whole::<u64>(0..=86_400_000))]
    redis_max_skew: u64,
    #[command(flatten)]
    redis_files: RedisFiles,
    /// How much memory the states may take, in bytes or with a unit: KiB, MiB or GiB. The policies share
    /// it in equal parts. A full part learns no new keys: for them the policy's `on_error` decides
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = size, conflicts_with = "redis")]
    max_memory: Size,
    /// How many connections may be open at a time; for a further one an idle one is closed, or it waits
    #[arg(long, value_name = "N", default_value_t = Bounds::default().max_connections, value_parser = whole::<usize>(1..=1_000_000))]
    max_connections: usize,
    /// The bearer token of callers that ask for decisions
    #[arg(long, value_name = "TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// The bearer token of callers that also reset and block keys; without it nobody may, once there is a
    /// token for decisions
    #[arg(long, value_name = "TOKEN", hide_env_values = true)]
    admin_token: Option<String>,
    /// Tell in the header `Server-Timing` how long the store took for a decision
    #[arg(long)]
    server_timing: bool,
    /// The secret of the hashes that stand for keys in the log, so that several servers write the same hash of a key;
    /// random by default
    #[arg(long, value_name = "SECRET", hide_env_values = true, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    log_secret: Option<String>,
    /// The form of the log on standard error
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
    /// The least important lines that the log has. Changes of the policies that callers make are always in the log
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t = LogLevel::Info)]
    log_level: LogLevel,
}

pub(crate) async fn run(arguments: Arguments, warnings: &[String]) -> Result<ExitCode> {
    log::start(arguments.log_format, arguments.log_level);
    for warning in warnings {
        warn!("{warning}");
    }
    let _lock = match arguments.admin_token {
        Some(_) => lock(&arguments.revisions())?,
        None => None, // nobody may change the policies
    };
    let prepared = prepare(&arguments).await?;
    // before the server waits for Redis; until here a signal ends the process, also while it waits for a pipe
    let mut reload = Reload::default();
    let mut stop = pin!(stopped(reload.clone())?);
    #[cfg(feature = "otel")]
    let spans = super::otel::start(prepared.spans);
    let Prepared { policies, files, tls, addresses, access, store, .. } = prepared;
    for policy in policies.all() {
        for warning in super::calendars::warnings(policy, tidegate::clock::now()) {
            warn!("policies.{}: {warning}", policy.name());
        }
    }
    if let Store::Redis(redis) = &store {
        tokio::select! {
            () = &mut stop => return Ok(ExitCode::SUCCESS),
            answered = redis.ping() => if let Err(error) = answered {
                // the server starts nevertheless: `on_error` decides until Redis answers
                warn!(kind = error.kind(), error = error.to_string(), "Redis does not answer"); // a field is escaped
            }
        }
    }
    reload = tls.into_iter().fold(reload, Reload::with_tls);
    let scheme = if reload.has_tls() { "https" } else { "http" };
    let (mut listeners, mut urls) = (Vec::new(), Vec::new());
    for (listen, addresses) in addresses {
        let bound = TcpListener::bind(&*addresses).await;
        let listener = bound.with_context(|| format!("--listen {listen}"))?;
        urls.push(format!("{scheme}://{}", listener.local_addr()?));
        listeners.push(listener);
    }
    let names: Vec<&str> = policies.all().iter().map(|policy| policy.name()).collect();
    say(&format!(
        "listening on {}, states in {}, policies {}, {}",
        urls.join(" and "),
        arguments.redis.as_deref().map_or("memory".to_owned(), Redis::without_password),
        names.join(", "),
        files.tag()
    ))?;
    let bounds = Bounds { max_connections: arguments.max_connections, ..Bounds::default() };
    let mut watch = Watch { server_timing: arguments.server_timing, ..Watch::default() };
    watch.log_secret = arguments.log_secret.unwrap_or(watch.log_secret);
    let service = Service { policies, files, store, access, bounds, watch, reload };
    serve(service, listeners, stop).await;
    #[cfg(feature = "otel")]
    super::otel::stop(spans).await;
    Ok(ExitCode::SUCCESS)
}

impl Arguments {
    /// Where the revisions of the policy file are kept.
    fn revisions(&self) -> PathBuf {
        self.revisions.clone().unwrap_or_else(|| beside(self.policies.path(), ".revisions"))
    }
}

/// Resolves at Ctrl-C, or at the signal that `kill` and service managers send. At a hangup the server reads its files again.
fn stopped(reload: Reload) -> Result<impl Future<Output = ()> + Send + 'static> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        let name = loop {
            tokio::select! {
                _ = interrupt.recv() => break "SIGINT",
                _ = terminate.recv() => break "SIGTERM",
                _ = hangup.recv() => {
                    info!("SIGHUP: the server reads its files again");
                    reload.again();
                }
            }
        };
        info!("{name}: the server stops");
    })
}
