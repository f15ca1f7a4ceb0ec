//! Callers over HTTP who ask as fast as they get answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// How many connections ask at the same time.
pub(crate) const CONNECTIONS: u64 = 32;

/// What is asked.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) path: &'static str,
    /// The policy of a check; empty for a GET.
    pub(crate) policy: &'static str,
    pub(crate) keys: u64,
    /// What each answer must contain.
    pub(crate) expected: &'static str,
    /// Whether requests have the `cf` object of Cloudflare.
    pub(crate) has_cf: bool,
}

/// The header whose JSON becomes the `cf` object of a request.
pub(crate) const CF_HEADER: &str = "x-cf";

/// What Cloudflare tells of a request: the fields that its documentation names, with values as they come.
const CF: &str = include_str!("../worker/cf.json");

impl Load {
    /// The answers a second, of a server at this URL.
    pub(crate) async fn measure(self, url: &str, section: Duration) -> Result<f64> {
        let address: Arc<str> = url.strip_prefix("http://").context("http")?.into();
        let count = Arc::new(AtomicU64::new(0));
        let began = Instant::now();
        let end = began + section;
        let mut callers = JoinSet::new();
        for caller in 0..CONNECTIONS {
            let (address, count) = (Arc::clone(&address), Arc::clone(&count));
            callers.spawn(async move {
                let mut connection = Connection::open(&address).await?;
                let mut key = caller;
                while Instant::now() < end {
                    key = (key + CONNECTIONS) % self.keys.max(1);
                    self.ask(&mut connection, &address, key).await?;
                    count.fetch_add(1, Ordering::Relaxed);
                }
                Ok::<_, anyhow::Error>(())
            });
        }
        while let Some(ended) = callers.join_next().await {
            ended??;
        }
        Ok(count.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64())
    }

    /// The time below which 99 of 100 answers come, of a server that is asked so often a second. An answer is late from the moment at
    /// which its request was due, also if the request had to wait for the answer before it.
    pub(crate) async fn p99(self, url: &str, rate: f64, section: Duration) -> Result<Duration> {
        let address: Arc<str> = url.strip_prefix("http://").context("http")?.into();
        let between = Duration::from_secs_f64(CONNECTIONS as f64 / rate);
        let began = Instant::now();
        let mut callers = JoinSet::new();
        for caller in 0..CONNECTIONS {
            let address = Arc::clone(&address);
            callers.spawn(async move {
                let mut connection = Connection::open(&address).await?;
                let (mut key, mut took) = (caller, Vec::new());
                let mut due = began + between.mul_f64(caller as f64 / CONNECTIONS as f64);
                while due < began + section {
                    tokio::time::sleep_until(due.into()).await;
                    key = (key + CONNECTIONS) % self.keys.max(1);
                    self.ask(&mut connection, &address, key).await?;
                    took.push(due.elapsed());
                    due += between;
                }
                Ok::<_, anyhow::Error>(took)
            });
        }
        let mut took = Vec::new();
        while let Some(ended) = callers.join_next().await {
            took.extend(ended??);
        }
        took.sort_unstable();
        took.get(took.len() * 99 / 100).copied().context("expected an answer")
    }

    /// Asks once.
    pub(crate) async fn first(self, url: &str) -> Result<String> {
        let address = url.strip_prefix("http://").context("http")?;
        self.ask(&mut Connection::open(address).await?, address, 0).await
    }

    async fn ask(self, connection: &mut Connection, address: &str, key: u64) -> Result<String> {
        let answer = connection.ask(&self.request(address, key)).await?;
        if !answer.contains(self.expected) {
            bail!("{}: expected {:?}, found {answer:?}", self.path, self.expected);
        }
        Ok(answer)
    }

    fn request(self, address: &str, key: u64) -> String {
        let Self { path, policy, .. } = self;
        let mut host = address.to_owned();
        if self.has_cf {
            host.push_str(&format!("\r\n{CF_HEADER}: {}", CF.trim_end()));
        }
        if policy.is_empty() {
            return format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n");
        }
        let body = format!(r#"{{"policy":"{policy}","key":"user:{key}"}}"#);
        post(&host, path, &body)
    }
}

/// A request with a body of JSON.
pub(crate) fn post(host: &str, path: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
}

pub(crate) struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, read: Vec::with_capacity(4_096) })
    }

    /// Sends a request and returns the response. The server gives its length.
    pub(crate) async fn ask(&mut self, request: &str) -> Result<String> {
        self.stream.write_all(request.as_bytes()).await?;
        self.read.clear();
        loop {
            if self.stream.read_buf(&mut self.read).await? == 0 {
                bail!("the server closed the connection");
            }
            let text = std::str::from_utf8(&self.read)?;
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                name.eq_ignore_ascii_case("content-length").then(|| value.parse::<usize>().ok())?
            });
            if body.len() >= length.context("expected a content-length")? {
                return Ok(text.to_owned());
            }
        }
    }
}
