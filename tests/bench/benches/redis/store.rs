//! The store under load.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tidegate::clock;
use tidegate::gate::{Policy, Resolved};
use tidegate::store::{Memory, Redis, RedisOptions};
use tokio::task::JoinSet;

use crate::server::{Counts, Server};
use crate::table::{Figure, Row};

/// A policy that grants every request of a section. Less than one unit refills in a section of up to 50 s,
/// so the states say how many requests were granted.
pub(crate) fn plenty(name: &str) -> Result<Arc<Policy>> {
    policy(name, "{ algorithm = 'token_bucket', capacity = 150_000_000, rate = '1/m' }")
}

/// The most units that a node holds of a key of [`lent`].
const MOST_LENT: u64 = 100_000;

/// A policy that grants every request, and lends units to nodes.
pub(crate) fn lent() -> Result<Arc<Policy>> {
    let limit = "{ algorithm = 'token_bucket', capacity = 150_000_000, rate = '1/m' }";
    let nodes = format!("local = {{ most = {MOST_LENT}, time = '1m' }}");
    Ok(Arc::new(Policy::parse("lent", &format!("{nodes}\nlimits = [{limit}]"))?))
}

/// A policy that grants one request.
pub(crate) fn exhausted() -> Result<Arc<Policy>> {
    policy("exhausted", ONE_AN_HOUR)
}

const ONE_AN_HOUR: &str = "{ algorithm = 'token_bucket', capacity = 1, rate = '1/h' }";

fn policy(name: &str, limit: &str) -> Result<Arc<Policy>> {
    Ok(Arc::new(Policy::parse(name, &format!("limits = [{limit}]"))?))
}

/// The times of one refusal: by the store in Redis, whose policy lets it remember refusals, and by the store
/// in memory. They are measured in turns.
pub(crate) async fn known_refusal(server: &Server) -> Result<(Duration, Duration)> {
    const TIMES: u32 = 100_000;
    server.flush().await?;
    let text = format!("remember = '1h'\nlimits = [{ONE_AN_HOUR}]");
    let policy = Arc::new(Policy::parse("known", &text)?);
    let key = Resolved::new(&policy, "user:42")?;
    let (redis, memory) = (store(server)?, Memory::new(policy, 1 << 20)?);
    for _ in 0..2 {
        redis.operate(&key, clock::now(), 1).await?;
        memory.operate(&key, clock::now(), 1)?;
    }
    let before = server.counts().await?;
    let mut best = (Duration::MAX, Duration::MAX);
    for _ in 0..TURNS {
        let began = Instant::now();
        for _ in 0..TIMES {
            let refused = redis.operate(&key, clock::now(), 1).await?;
            ensure!(!black_box(refused).decision.is_allowed(), "the key is exhausted");
        }
        let between = Instant::now();
        for _ in 0..TIMES {
            let refused = memory.operate(&key, clock::now(), 1)?;
            ensure!(!black_box(refused).decision.is_allowed(), "the key is exhausted");
        }
        best.0 = best.0.min((between - began) / TIMES);
        best.1 = best.1.min(between.elapsed() / TIMES);
    }
    let calls = server.counts().await?.script_calls - before.script_calls;
    ensure!(calls == 0, "expected no call of the script, found {calls}");
    Ok(best)
}

/// The times of a grant out of lent units of one key: by one thread, and by two threads at once, in turns.
pub(crate) async fn lent_by_threads(server: &Server) -> Result<(Duration, Duration)> {
    const TIMES: u32 = 500_000;
    server.flush().await?;
    let key = Arc::new(Resolved::new(&lent()?, "user:42")?);
    let redis = store(server)?;
    let spend = |times| {
        let (redis, key) = (Arc::clone(&redis), Arc::clone(&key));
        tokio::spawn(async move {
            for _ in 0..times {
                let granted = redis.operate(&key, clock::now(), 1).await?;
                ensure!(black_box(granted).decision.is_allowed(), "there are plenty");
            }
            Ok(())
        })
    };
    let mut best = (Duration::MAX, Duration::MAX);
    for _ in 0..TURNS {
        let began = Instant::now();
        spend(TIMES).await??;
        best.0 = best.0.min(began.elapsed() / TIMES);
        let began = Instant::now();
        let (one, other) = (spend(TIMES / 2), spend(TIMES / 2));
        one.await??;
        other.await??;
        best.1 = best.1.min(began.elapsed() / TIMES);
    }
    Ok(best)
}

/// Callers who ask one store about keys. Each asks again as soon as it has its answer.
#[derive(Clone)]
pub(crate) struct Load {
    store: Arc<Redis>,
    /// Found once, so that the store alone is measured.
    keys: Arc<[Resolved]>,
    callers: usize,
}

/// What was measured.
pub(crate) struct Measured {
    elapsed: Duration,
    /// The times of all decisions, sorted.
    times: Vec<Duration>,
    before: Counts,
    after: Counts,
    /// The memory of Redis for each key, its share of the tables of Redis included.
    bytes_a_key: f64,
    /// The number of servers.
    servers: u64,
}

/// What a task of callers saw.
#[derive(Default)]
struct Seen {
    granted: u64,
    times: Vec<Duration>,
}

impl Load {
    pub(crate) fn new(
        server: &Server,
        policy: Arc<Policy>,
        keys: usize,
        callers: usize,
    ) -> Result<Self> {
        let keys = (0..keys).map(|key| Resolved::new(&policy, &format!("user:{key:08}")));
        Ok(Self { store: store(server)?, keys: keys.collect::<Result<_, _>>()?, callers })
    }

    /// Asks about every key once, measures, and checks that Redis holds what was granted.
    pub(crate) async fn measure(&self, server: &Server, length: Duration) -> Result<Measured> {
        server.flush().await?;
        self.store.ping().await?; // connected before the memory is read
        let empty = server.counts().await?;
        let first = self.each_once(1).await?.iter().filter(|(granted, _)| *granted).count() as u64;
        let before = server.counts().await?;
        let began = Instant::now();
        let Seen { granted, mut times } = self.ask_until(began + length).await?;
        let elapsed = began.elapsed();
        let after = server.counts().await?;
        self.check(server, first + granted).await?;

        times.sort_unstable();
        let bytes_a_key = after.memory.saturating_sub(empty.memory) as f64 / after.keys as f64;
        let servers = u64::try_from(server.len())?;
        Ok(Measured { elapsed, times, before, after, bytes_a_key, servers })
    }

    /// The median time of a GET while this load is running.
    pub(crate) async fn get_meanwhile(
        &self,
        server: &Server,
        length: Duration,
    ) -> Result<Duration> {
        let end = Instant::now() + length;
        let (seen, times) = tokio::join!(self.ask_until(end), server.get_times(end));
        seen?;
        median(times?)
    }

    /// The median times of a decision and of a GET. They are asked in turns, because the pace of the
    /// machine changes from second to second.
    pub(crate) async fn in_turns_with_get(
        &self,
        server: &Server,
        length: Duration,
    ) -> Result<(Duration, Duration)> {
        let (mut decisions, mut gets) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            decisions.extend(self.ask_until(Instant::now() + length / TURNS).await?.times);
            gets.extend(server.get_times(Instant::now() + length / TURNS).await?);
        }
        Ok((median(decisions)?, median(gets)?))
    }

    /// Each caller asks about keys that it draws, until `end`.
    async fn ask_until(&self, end: Instant) -> Result<Seen> {
        let mut callers = JoinSet::new();
        for seed in 0..self.callers {
            let (load, mut draws) = (self.clone(), fastrand::Rng::with_seed(u64::try_from(seed)?));
            callers.spawn(async move {
                let (mut seen, mut asked) = (Seen::default(), Instant::now());
                while asked < end {
                    let key = &load.keys[draws.usize(..load.keys.len())];
                    let verdict = load.store.operate(key, clock::now(), 1).await?;
                    let answered = Instant::now();
                    seen.times.push(answered - asked);
                    seen.granted += u64::from(verdict.decision.is_allowed());
                    asked = answered;
                }
                anyhow::Ok(seen)
            });
        }
        let mut all = Seen::default();
        while let Some(caller) = callers.join_next().await {
            let Seen { granted, times } = caller??;
            all.granted += granted;
            all.times.extend(times);
        }
        Ok(all)
    }

    /// Asks each key for these units. Returns whether they were granted, and what remains.
    async fn each_once(&self, cost: u64) -> Result<Vec<(bool, u64)>> {
        let mut callers = JoinSet::new();
        for first in 0..self.callers {
            let load = self.clone();
            callers.spawn(async move {
                let mut answers = Vec::new();
                for key in load.keys.iter().skip(first).step_by(load.callers) {
                    let decision = load.store.operate(key, clock::now(), cost).await?.decision;
                    answers.push((decision.is_allowed(), decision.remaining()));
                }
                anyhow::Ok(answers)
            });
        }
        let mut all = Vec::new();
        while let Some(answers) = callers.join_next().await {
            all.extend(answers??);
        }
        Ok(all)
    }

    /// Checks that the states in Redis account for every grant. Another store reads them, so what this
    /// store remembers does not count.
    async fn check(&self, server: &Server, granted: u64) -> Result<()> {
        let reader = Self { store: store(server)?, callers: 256, ..self.clone() };
        let limits = self.keys[0].limits().context("the key is not limited")?;
        let capacity = limits.capacity();
        let answers = reader.each_once(0).await?;
        let taken: u64 = answers.iter().map(|(_, remains)| capacity - remains).sum();
        let lent = if self.keys[0].policy().local().is_some() { MOST_LENT } else { 0 };
        ensure!(
            (granted..=granted + lent).contains(&taken),
            "{granted} requests were granted and at most {lent} units are held, but Redis holds {taken}"
        );
        Ok(())
    }
}

const TURNS: u32 = 40;

fn median(mut times: Vec<Duration>) -> Result<Duration> {
    times.sort_unstable();
    times.get(times.len() / 2).copied().context("nothing was answered")
}

pub(crate) fn store(server: &Server) -> Result<Arc<Redis>> {
    // A long deadline: an answer that is late on a busy machine is still measured.
    let deadline = Duration::from_secs(5);
    let options = RedisOptions { deadline, ..RedisOptions::default() };
    Ok(Arc::new(Redis::new(server.url(), options)?))
}

impl Measured {
    fn decisions(&self) -> f64 {
        self.times.len() as f64
    }

    /// The measurement with more decisions a second.
    pub(crate) fn better(self, other: Self) -> Self {
        if other.per_second() > self.per_second() { other } else { self }
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.decisions() / self.elapsed.as_secs_f64()
    }

    pub(crate) fn rate(&self) -> Row {
        Row::new("decisions", Figure::PerSecond(self.per_second()))
    }

    /// The time within which this share of the decisions was answered.
    pub(crate) fn time(&self, what: &'static str, share: f64) -> Row {
        let place = (self.decisions() * share) as usize;
        let time = self.times.get(place).or(self.times.last());
        Row::new(what, Figure::Time(time.copied().unwrap_or_default()))
    }

    pub(crate) fn bytes_a_key(&self) -> Row {
        Row::new("bytes a key in Redis", Figure::Number(self.bytes_a_key.round()))
    }

    /// What a decision costs Redis.
    pub(crate) fn costs(&self) -> [Row; 3] {
        let Self { before, after, .. } = self;
        let row =
            |what, count: u64| Row::new(what, Figure::Number(count as f64 / self.decisions()));
        // without the reads of DBSIZE in `before` and of INFO in `after`
        let reads = (after.reads - before.reads).saturating_sub(2 * self.servers);
        [
            row("commands a decision", after.commands - before.commands),
            row("script calls a decision", after.script_calls - before.script_calls),
            row("reads a decision", reads),
        ]
    }
}
