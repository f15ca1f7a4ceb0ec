//! The Redis store beside what Redis itself can do, on one private Redis without persistence, and on Clusters.
//!
//! The baselines are measured, then the store twice, then the baselines again. The better figure of two
//! counts, because the machine may be shared. Each measurement of the store is checked: Redis must hold
//! exactly what was granted.

mod baseline;
mod reserve;
mod scale;
mod server;
mod store;
#[path = "../common/table.rs"]
mod table;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::runtime::Builder;

use crate::baseline::{Baselines, INCR, SCRIPT, SCRIPT_ONE_KEY};
use crate::reserve::checks_and_pairs;
use crate::scale::Scale;
use crate::server::Server;
use crate::store::{Load, Measured, exhausted, known_refusal, lent, lent_by_threads, plenty};
use crate::table::{Figure, Goal, Row, Table};

/// How many keys the rows of many keys have.
const KEYS: usize = 100_000;

/// How many callers ask at the same time.
const CALLERS: usize = 256;

fn main() -> Result<()> {
    let arguments = Arguments::parse(std::env::args().skip(1))?;
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async {
        // in a task, because the thread that blocks is not one of the two workers
        tokio::spawn(run(arguments)).await?
    })
}

struct Arguments {
    /// How long each section is measured.
    section: Duration,
    /// The file for the figures.
    json: Option<PathBuf>,
    /// One more number of keys, for instance 10,000,000.
    keys: Option<usize>,
}

impl Arguments {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let mut arguments = Self { section: Duration::from_secs(2), json: None, keys: None };
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("`{word}`: expected a value"));
            match word.as_str() {
                "--bench" => {} // cargo adds it
                "--seconds" => arguments.section = seconds(&value()?)?,
                "--json" => arguments.json = Some(value()?.into()),
                "--keys" => {
                    let keys = value()?.parse();
                    arguments.keys = Some(keys.context("`--keys`: expected a whole number")?);
                }
                _ => bail!("expected --seconds, --json or --keys, found {word:?}"),
            }
        }
        Ok(arguments)
    }
}

fn seconds(text: &str) -> Result<Duration> {
    let length = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    length
        .filter(|length| !length.is_zero())
        .with_context(|| format!("`--seconds`: expected a number above 0, found {text:?}"))
}

async fn run(Arguments { section, json, keys }: Arguments) -> Result<()> {
    let server = Server::start().await?;
    let mut baselines = Baselines::new(&server, KEYS).await?;
    baselines.measure(&server, section).await?;
    let sections = Sections::measure(&server, section).await?;
    let sections = sections.better(Sections::measure(&server, section).await?);
    let scale = Scale::measure(&server, (KEYS, CALLERS), keys, section).await?;
    baselines.measure(&server, section).await?;

    let mut table = compare(&baselines, &sections);
    scale.groups(&mut table, &sections.many_keys, (KEYS, CALLERS));
    print!("{table}");
    json.map_or(Ok(()), |file| table.write_json(&file))
}

/// What was measured of the store.
struct Sections {
    many_keys: Measured,
    one_key: Measured,
    /// The median time of a GET while one key is asked by all callers.
    get_beside_one_key: Duration,
    alone: Measured,
    /// The median times of a decision and of a GET, in turns.
    alone_and_get: (Duration, Duration),
    refused: Measured,
    lent: Measured,
    /// The times of a grant out of lent units of one key, by one thread and by two.
    lent_by_threads: (Duration, Duration),
    /// Checks a second, and pairs of `reserve` and `commit`, of a policy with reservations.
    checks_and_pairs: (f64, f64),
    /// The times of a refusal that is known, and of one of the store in memory.
    known: (Duration, Duration),
}

impl Sections {
    async fn measure(server: &Server, section: Duration) -> Result<Self> {
        let many_keys = Load::new(server, plenty("many")?, KEYS, CALLERS)?;
        let one_key = Load::new(server, plenty("hot")?, 1, CALLERS)?;
        let alone = Load::new(server, plenty("alone")?, 1, 1)?;
        let refused = Load::new(server, exhausted()?, 1, CALLERS)?;
        let lent = Load::new(server, lent()?, 1, CALLERS)?;
        Ok(Self {
            many_keys: many_keys.measure(server, section).await?,
            get_beside_one_key: one_key.get_meanwhile(server, section / 2).await?,
            one_key: one_key.measure(server, section).await?,
            alone_and_get: alone.in_turns_with_get(server, section).await?,
            alone: alone.measure(server, section).await?,
            refused: refused.measure(server, section).await?,
            lent: lent.measure(server, section).await?,
            lent_by_threads: lent_by_threads(server).await?,
            checks_and_pairs: checks_and_pairs(server, (KEYS, CALLERS), section * 2).await?,
            known: known_refusal(server).await?,
        })
    }

    /// The better of two measurements of each section.
    fn better(self, other: Self) -> Self {
        let ratio = |(alone, get): (Duration, Duration)| alone.as_secs_f64() / get.as_secs_f64();
        let is_nearer = ratio(other.alone_and_get) < ratio(self.alone_and_get);
        Self {
            many_keys: self.many_keys.better(other.many_keys),
            get_beside_one_key: self.get_beside_one_key.min(other.get_beside_one_key),
            one_key: self.one_key.better(other.one_key),
            alone_and_get: if is_nearer { other.alone_and_get } else { self.alone_and_get },
            alone: self.alone.better(other.alone),
            refused: self.refused.better(other.refused),
            lent: self.lent.better(other.lent),
            lent_by_threads: (
                self.lent_by_threads.0.min(other.lent_by_threads.0),
                self.lent_by_threads.1.min(other.lent_by_threads.1),
            ),
            checks_and_pairs: (
                self.checks_and_pairs.0.max(other.checks_and_pairs.0),
                self.checks_and_pairs.1.max(other.checks_and_pairs.1),
            ),
            known: (self.known.0.min(other.known.0), self.known.1.min(other.known.1)),
        }
    }
}

fn compare(baselines: &Baselines, sections: &Sections) -> Table {
    let Sections { many_keys, one_key, get_beside_one_key, alone, refused, lent, .. } = sections;
    let Sections { alone_and_get, known, lent_by_threads, .. } = sections;
    let (alone_in_turns, get) = (Figure::Time(alone_and_get.0), Figure::Time(alone_and_get.1));
    let baseline = |name| Figure::PerSecond(baselines.per_second(name));
    let mut table = Table::of("redis");
    for (name, rate) in baselines.rates() {
        let connections = Row::new("connections", Figure::Number(rate.connections as f64));
        let commands = Row::new("commands", Figure::PerSecond(rate.per_second));
        table.group(&format!("{name}, pipelined by 16"), vec![commands, connections]);
    }
    table.group(GET, vec![Row::new("p50", get)]);

    let mut rows = vec![
        many_keys.rate().beside(SCRIPT, baseline(SCRIPT), Goal::AtLeast(4.0)).beside(
            INCR,
            baseline(INCR),
            Goal::AtLeast(0.6),
        ),
        many_keys.time("p50", 0.5),
        many_keys.time("p99", 0.99),
    ];
    rows.extend(many_keys.costs());
    rows.push(many_keys.bytes_a_key());
    table.group(&format!("strict, {KEYS} keys, {CALLERS} callers"), rows);

    let script = baseline(SCRIPT_ONE_KEY);
    let mut rows = vec![
        one_key.rate().beside(SCRIPT_ONE_KEY, script, Goal::AtLeast(10.0)),
        one_key.time("p50", 0.5),
        one_key.time("p99", 0.99).beside(GET, get, Goal::AtMost(3.0)).beside(
            "GET beside this load",
            Figure::Time(*get_beside_one_key),
            Goal::Unset,
        ),
    ];
    rows.extend(one_key.costs());
    table.group(&format!("strict, one hot key, {CALLERS} callers"), rows);

    let mut rows = vec![
        Row::new("p50", alone_in_turns).beside(GET, get, Goal::AtMost(1.3)),
        alone.time("p99", 0.99),
    ];
    rows.extend(alone.costs());
    table.group("strict, one caller alone, key seen before", rows);

    let mut rows = vec![refused.rate().beside(SCRIPT_ONE_KEY, script, Goal::Unset)];
    rows.extend([refused.time("p50", 0.5), refused.time("p99", 0.99)]);
    rows.extend(refused.costs());
    table.group(&format!("strict, refusals on one key, {CALLERS} callers"), rows);

    let mut rows = vec![lent.rate().beside(SCRIPT_ONE_KEY, script, Goal::AtLeast(40.0))];
    rows.extend([lent.time("p50", 0.5), lent.time("p99", 0.99)]);
    rows.extend(lent.costs());
    table.group(&format!("units lent, one hot key, {CALLERS} callers"), rows);

    let (one, two) = *lent_by_threads;
    let row = Row::new("time of a grant", Figure::Time(two));
    let row = row.beside("one thread", Figure::Time(one), Goal::AtMost(1.0));
    table.group("units lent, one hot key, two threads", vec![row]);

    let (checks, pairs) = sections.checks_and_pairs;
    let row = Row::new("pairs", Figure::PerSecond(pairs));
    let row = row.beside("checks", Figure::PerSecond(checks), Goal::AtLeast(0.45));
    table.group(&format!("reserve and commit, {KEYS} keys, {CALLERS} callers"), vec![row]);

    let memory = Figure::Time(known.1);
    let row = Row::new("time", Figure::Time(known.0)).beside(MEMORY, memory, Goal::AtMost(2.0));
    table.group("a refusal that is known", vec![row]);
    table
}

const GET: &str = "GET, one caller";

const MEMORY: &str = "the refusal of the store in memory";
