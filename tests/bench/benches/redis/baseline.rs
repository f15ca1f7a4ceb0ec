//! What Redis does for clients that know what they ask: a token bucket as a script, and INCR, with 16
//! commands under way on each connection. The commands are written as bytes in advance, so the client costs
//! next to nothing.

use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use crate::server::Server;

pub(crate) const SCRIPT: &str = "token-bucket script";
pub(crate) const SCRIPT_ONE_KEY: &str = "token-bucket script, one key";
pub(crate) const INCR: &str = "INCR";

/// How many commands are under way on each connection.
const PIPELINED: usize = 16;

/// The numbers of connections that are tried. The fastest one is measured.
const CONNECTIONS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// A token bucket of two keys, as it is often published. ARGV: tokens a second, capacity, the time in
/// seconds, and the tokens to take. It is written for Redis alone and has none of the store's guarantees:
/// a clock that is set back, or a changed policy, gives wrong answers.
const TOKEN_BUCKET: &str = "\
local rate, capacity = tonumber(ARGV[1]), tonumber(ARGV[2])
local now, requested = tonumber(ARGV[3]), tonumber(ARGV[4])
local ttl = math.floor(capacity / rate * 2)
local tokens = tonumber(redis.call('GET', KEYS[1])) or capacity
local refreshed = tonumber(redis.call('GET', KEYS[2])) or 0
tokens = math.min(capacity, tokens + math.max(0, now - refreshed) * rate)
local allowed = 0
if tokens >= requested then
  allowed = 1
  tokens = tokens - requested
end
redis.call('SETEX', KEYS[1], ttl, tokens)
redis.call('SETEX', KEYS[2], ttl, now)
return { allowed, tokens }";

pub(crate) struct Baselines(Vec<Baseline>);

struct Baseline {
    name: &'static str,
    command: Command,
    keys: usize,
    best: Option<Rate>,
}

/// The best figure so far.
#[derive(Clone, Copy)]
pub(crate) struct Rate {
    pub(crate) per_second: f64,
    pub(crate) connections: usize,
}

impl Baselines {
    pub(crate) async fn new(server: &Server, keys: usize) -> Result<Self> {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(TOKEN_BUCKET);
        let hash: String = load.query_async(&mut server.connection()).await?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs().to_string();
        let script = [
            "EVALSHA",
            &hash,
            "2",
            "{user:########}.tokens",
            "{user:########}.timestamp",
            "1000000",
            "1000000000",
            &now,
            "1",
        ];
        let script = Command::new(&script, &["*2", ":1", ":"]);
        let incr = Command::new(&["INCR", "user:########"], &[":"]);
        let baseline = |name, command: &Command, keys| Baseline {
            name,
            command: command.clone(),
            keys,
            best: None,
        };
        Ok(Self(vec![
            baseline(SCRIPT, &script, keys),
            baseline(SCRIPT_ONE_KEY, &script, 1),
            baseline(INCR, &incr, keys),
        ]))
    }

    /// Measures all baselines once. Of each the better figure of all times stays.
    pub(crate) async fn measure(&mut self, server: &Server, section: Duration) -> Result<()> {
        for baseline in &mut self.0 {
            let connections = baseline.fastest_connections(server, section / 10).await?;
            let per_second = baseline.run(server, connections, section).await?;
            if baseline.best.is_none_or(|best| best.per_second < per_second) {
                baseline.best = Some(Rate { per_second, connections });
            }
        }
        Ok(())
    }

    pub(crate) fn rates(&self) -> impl Iterator<Item = (&'static str, Rate)> {
        self.0.iter().filter_map(|baseline| Some((baseline.name, baseline.best?)))
    }

    pub(crate) fn per_second(&self, name: &str) -> f64 {
        self.rates().find(|(of, _)| *of == name).map_or(0.0, |(_, rate)| rate.per_second)
    }
}

impl Baseline {
    async fn fastest_connections(&self, server: &Server, length: Duration) -> Result<usize> {
        let mut fastest = (0.0, CONNECTIONS[0]);
        for connections in CONNECTIONS {
            let per_second = self.run(server, connections, length).await?;
            if per_second > fastest.0 {
                fastest = (per_second, connections);
            }
        }
        Ok(fastest.1)
    }

    /// Answers a second over this many connections. One thread serves them all, because Redis needs the
    /// other core.
    async fn run(&self, server: &Server, connections: usize, length: Duration) -> Result<f64> {
        let (command, keys, address) = (self.command.clone(), self.keys, server.address);
        let thread = move || {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(command.run(address, connections, keys, length))
        };
        tokio::task::spawn_blocking(thread).await?
    }
}

/// A command as Redis reads it.
#[derive(Clone)]
struct Command {
    bytes: Vec<u8>,
    /// Where the eight digits of the key are.
    digits: Vec<usize>,
    /// What the lines of its answer begin with.
    answer: &'static [&'static str],
}

impl Command {
    /// `########` in a word stands for the number of the key.
    fn new(words: &[&str], answer: &'static [&'static str]) -> Self {
        let (mut bytes, mut digits) = (format!("*{}\r\n", words.len()).into_bytes(), Vec::new());
        for word in words {
            bytes.extend(format!("${}\r\n", word.len()).bytes());
            digits.extend(word.find("########").map(|place| bytes.len() + place));
            bytes.extend(format!("{word}\r\n").bytes());
        }
        Self { bytes, digits, answer }
    }

    /// Answers a second over this many connections.
    async fn run(
        self,
        address: SocketAddr,
        connections: usize,
        keys: usize,
        length: Duration,
    ) -> Result<f64> {
        let mut streams = Vec::new();
        for _ in 0..connections {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            streams.push(stream);
        }
        let (mut tasks, began) = (JoinSet::new(), Instant::now());
        for (seed, stream) in (0..).zip(streams) {
            let draws = fastrand::Rng::with_seed(seed);
            tasks.spawn(self.clone().repeat(stream, draws, keys, began + length));
        }
        let mut answers = 0;
        while let Some(of_connection) = tasks.join_next().await {
            answers += of_connection??;
        }
        Ok(answers as f64 / began.elapsed().as_secs_f64())
    }

    /// Sends batches of [`PIPELINED`] commands until `end`. Returns the number of answers.
    async fn repeat(
        self,
        mut stream: TcpStream,
        mut draws: fastrand::Rng,
        keys: usize,
        end: Instant,
    ) -> Result<u64> {
        let mut batch = self.bytes.repeat(PIPELINED);
        let (mut answers, mut buffer) = (0, vec![0; 16_384]);
        while Instant::now() < end {
            for command in batch.chunks_exact_mut(self.bytes.len()) {
                let mut key = draws.usize(..keys);
                for place in (0..8).rev() {
                    let digit = b'0' + u8::try_from(key % 10)?;
                    self.digits.iter().for_each(|start| command[start + place] = digit);
                    key /= 10;
                }
            }
            stream.write_all(&batch).await?;
            self.read_answers(&mut stream, &mut buffer).await?;
            answers += PIPELINED as u64;
        }
        Ok(answers)
    }

    async fn read_answers(&self, stream: &mut TcpStream, buffer: &mut [u8]) -> Result<()> {
        let (mut end, mut lines) = (0, 0);
        while lines < PIPELINED * self.answer.len() {
            let read = stream.read(&mut buffer[end..]).await?;
            ensure!(read > 0, "Redis closed the connection");
            lines += buffer[end..end + read].iter().filter(|&&byte| byte == b'\n').count();
            end += read;
        }
        let expected = self.answer.iter().cycle();
        for (line, expected) in buffer[..end].split_inclusive(|&byte| byte == b'\n').zip(expected) {
            if !line.starts_with(expected.as_bytes()) {
                let found = String::from_utf8_lossy(line);
                bail!("expected an answer that begins with {expected:?}, found {found:?}");
            }
        }
        buffer[..end].last().filter(|&&byte| byte == b'\n').context("an answer was cut")?;
        Ok(())
    }
}
