//! A private Redis on a free port, and what it counts.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use redis::aio::MultiplexedConnection;
use tidegate::local::RedisServer;

pub(crate) struct Server {
    _server: RedisServer,
    pub(crate) address: SocketAddr,
    /// For questions about the server, and for the round trips of a GET.
    connection: MultiplexedConnection,
}

/// What Redis has counted since it started.
#[derive(Clone, Copy)]
pub(crate) struct Counts {
    /// Commands, those of scripts included.
    pub(crate) commands: u64,
    pub(crate) script_calls: u64,
    /// How often Redis read from a connection. With one caller alone this is the number of round trips.
    pub(crate) reads: u64,
    pub(crate) memory: u64,
    pub(crate) keys: u64,
}

impl Server {
    pub(crate) async fn start() -> Result<Self> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let options = ["--bind", "127.0.0.1", "--port", &port.to_string()];
        let server = RedisServer::start_with(options)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let client = redis::Client::open(format!("redis://{address}/{DATABASE}"))?;
        let connection = client.get_multiplexed_async_connection().await?;
        Ok(Self { _server: server, address, connection })
    }

    /// The address for the store. The baselines use database 0, so the memory of their keys stays apart.
    pub(crate) fn url(&self) -> String {
        format!("redis://{}/{DATABASE}", self.address)
    }

    pub(crate) fn connection(&self) -> MultiplexedConnection {
        self.connection.clone()
    }

    pub(crate) async fn counts(&self) -> Result<Counts> {
        let mut connection = self.connection();
        let text: String = redis::cmd("INFO").arg("all").query_async(&mut connection).await?;
        let calls = |of: &dyn Fn(&str) -> bool| {
            let commands = text.lines().filter_map(|line| line.strip_prefix("cmdstat_"));
            let counted = commands.filter_map(|line| line.split_once(":calls="));
            counted
                .filter(|(name, _)| of(name))
                .filter_map(|(_, rest)| rest.split(',').next()?.parse::<u64>().ok())
                .sum()
        };
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.and_then(|value| value.parse().ok()).with_context(|| format!("INFO: no {name}"))
        };
        let keys = redis::cmd("DBSIZE").query_async(&mut connection).await?;
        Ok(Counts {
            commands: calls(&|name| !["info", "dbsize"].contains(&name)),
            script_calls: calls(&|name| ["eval", "evalsha", "fcall"].contains(&name)),
            reads: field("total_reads_processed")?,
            memory: field("used_memory")?,
            keys,
        })
    }

    /// Deletes the keys of the store.
    pub(crate) async fn flush(&self) -> Result<()> {
        Ok(redis::cmd("FLUSHDB").exec_async(&mut self.connection()).await?)
    }

    /// The times of GETs of a stored value, one after another, on a connection that nobody else uses
    /// meanwhile, by the client that the store uses.
    pub(crate) async fn get_times(&self, until: Instant) -> Result<Vec<Duration>> {
        let mut connection = self.connection();
        redis::cmd("SET").arg(PROBE).arg(&[1_u8; 25][..]).exec_async(&mut connection).await?;
        let (mut times, mut asked) = (Vec::new(), Instant::now());
        while asked < until {
            let _: Vec<u8> = redis::cmd("GET").arg(PROBE).query_async(&mut connection).await?;
            let answered = Instant::now();
            times.push(answered - asked);
            asked = answered;
        }
        Ok(times)
    }
}

const DATABASE: u8 = 1;
const PROBE: &str = "get";
