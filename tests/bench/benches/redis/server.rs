//! A private Redis or Cluster on free ports, and what it counts.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tidegate::local::{RedisCluster, RedisServer};

pub(crate) struct Server {
    _processes: Processes,
    /// Of the first server.
    pub(crate) address: SocketAddr,
    url: String,
    /// For questions about each server, and for the round trips of a GET.
    connections: Vec<MultiplexedConnection>,
}

/// They end when this is dropped.
enum Processes {
    One { _server: RedisServer },
    Cluster { _nodes: RedisCluster },
}

/// What Redis has counted since it started.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    /// Commands, those of scripts included.
    pub(crate) commands: u64,
    pub(crate) script_calls: u64,
    /// How often Redis read from a connection. With one caller alone this is the number of round trips.
    pub(crate) reads: u64,
    pub(crate) memory: u64,
    pub(crate) keys: u64,
}

/// A connection that waits as long as Redis needs: to delete ten million keys takes seconds.
async fn connect(client: &redis::Client) -> Result<MultiplexedConnection> {
    let patient = AsyncConnectionConfig::new().set_response_timeout(None);
    Ok(client.get_multiplexed_async_connection_with_config(&patient).await?)
}

impl Server {
    pub(crate) async fn start() -> Result<Self> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let options = ["--bind", "127.0.0.1", "--port", &port.to_string()];
        let server = RedisServer::start_with(options)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let client = redis::Client::open(format!("redis://{address}/{DATABASE}"))?;
        let connections = vec![connect(&client).await?];
        // the baselines use database 0, so the memory of their keys stays apart
        let url = format!("redis://{address}/{DATABASE}");
        Ok(Self { _processes: Processes::One { _server: server }, address, url, connections })
    }

    /// A Cluster of so many masters.
    pub(crate) async fn cluster(masters: u16) -> Result<Self> {
        let start = move || RedisCluster::start(masters, false);
        let nodes = tokio::task::spawn_blocking(start).await??;
        let mut connections = Vec::new();
        for node in nodes.nodes() {
            let client = redis::Client::open(node.url())?;
            connections.push(connect(&client).await?);
        }
        let port = nodes.ports().first().copied().context("no node")?;
        let (address, url) = (SocketAddr::from((Ipv4Addr::LOCALHOST, port)), nodes.url());
        Ok(Self { _processes: Processes::Cluster { _nodes: nodes }, address, url, connections })
    }

    /// The address for the store.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// To the first server.
    pub(crate) fn connection(&self) -> MultiplexedConnection {
        self.connections[0].clone()
    }

    /// The number of servers.
    pub(crate) fn len(&self) -> usize {
        self.connections.len()
    }

    /// What all servers have counted.
    pub(crate) async fn counts(&self) -> Result<Counts> {
        let mut all = Counts::default();
        for connection in &self.connections {
            let one = Counts::of(connection.clone()).await?;
            all.commands += one.commands;
            all.script_calls += one.script_calls;
            all.reads += one.reads;
            all.memory += one.memory;
            all.keys += one.keys;
        }
        Ok(all)
    }

    /// Deletes the keys of the store.
    pub(crate) async fn flush(&self) -> Result<()> {
        for connection in &self.connections {
            redis::cmd("FLUSHDB").exec_async(&mut connection.clone()).await?;
        }
        Ok(())
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

impl Counts {
    async fn of(mut connection: MultiplexedConnection) -> Result<Self> {
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
        Ok(Self {
            commands: calls(&|name| !["info", "dbsize"].contains(&name)),
            script_calls: calls(&|name| ["eval", "evalsha", "fcall"].contains(&name)),
            reads: field("total_reads_processed")?,
            memory: field("used_memory")?,
            keys,
        })
    }
}

const DATABASE: u8 = 1;
const PROBE: &str = "get";
