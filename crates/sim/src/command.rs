//! `tidegate-sim world`: histories of one seed after another, until one breaks an invariant.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rand::Rng;
use tidegate_sim::world::{History, Script, Tally, Violation, objects, shrink};

/// Runs nodes, a storage and a network that fail, and checks every answer
///
/// Each seed gives one history of some hundred or thousand steps, and the next history has the next seed. If a
/// history breaks an invariant, the command prints the shortest script that it finds and exits with code 1.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The first seed [default: a random one]
    #[arg(long)]
    seed: Option<u64>,
    /// The number of steps after which no further history begins [default: no end]
    #[arg(long)]
    steps: Option<u64>,
    /// The number of seconds after which no further history begins [default: 60 without --steps]
    #[arg(long)]
    seconds: Option<u64>,
    /// Runs objects that own their states, as in the Worker, in place of hosts that share a storage
    #[arg(long)]
    objects: bool,
    /// Runs this script, and no seed
    #[arg(long, conflicts_with_all = ["seed", "steps", "seconds", "objects"])]
    script: Option<PathBuf>,
}

const EXAMPLES: &str = "Examples:
  cargo run -p tidegate-sim -- world                              random seeds for a minute
  cargo run -p tidegate-sim -- world --seed 1 --steps 1000000     as many histories from seed 1 on
  cargo run -p tidegate-sim -- world --seed 42 --steps 1          the history of seed 42
  cargo run -p tidegate-sim -- world --objects                    random seeds of the Worker's world
  cargo run -p tidegate-sim -- world --script FILE                a script that was printed before";

/// How often the progress is printed.
const PROGRESS: Duration = Duration::from_secs(5);

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    if let Some(path) = &arguments.script {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let story = Story::read(&text).with_context(|| path.display().to_string())?;
        return story.report();
    }
    let first = arguments.seed.unwrap_or_else(|| rand::rng().next_u64());
    let most_steps = arguments.steps.unwrap_or(u64::MAX);
    let seconds = arguments.seconds.or(arguments.steps.is_none().then_some(60));
    let began = Instant::now();
    let (mut steps, mut told) = (0, began);
    let (mut seed, mut tally) = (first, Tally::default());
    loop {
        let (story, violation, seen) = Story::of_seed(seed, arguments.objects)?;
        steps += u64::try_from(story.events())?;
        tally.merge(&seen);
        if let Some(violation) = violation {
            println!("seed {seed}: {violation}");
            return story.report();
        }
        let is_late = seconds.is_some_and(|most| began.elapsed().as_secs() >= most);
        let is_last = steps >= most_steps || is_late;
        if is_last || told.elapsed() >= PROGRESS {
            told = Instant::now();
            let histories = seed.wrapping_sub(first).wrapping_add(1);
            let elapsed = began.elapsed().as_secs();
            eprintln!("seeds {first} to {seed}: {histories} histories, {steps} steps, {elapsed} s");
        }
        if is_last {
            print!("{tally}");
            return Ok(ExitCode::SUCCESS);
        }
        seed = seed.wrapping_add(1);
    }
}

/// A script of either world.
enum Story {
    Hosts(Script),
    Objects(objects::Script),
}

impl Story {
    fn of_seed(seed: u64, of_objects: bool) -> Result<(Self, Option<Violation>, Tally)> {
        Ok(if of_objects {
            let objects::History { script, violation, tally } = objects::History::of_seed(seed)?;
            (Self::Objects(script), violation, tally)
        } else {
            let History { script, violation, tally } = History::of_seed(seed)?;
            (Self::Hosts(script), violation, tally)
        })
    }

    fn read(text: &str) -> Result<Self> {
        Ok(match objects::Script::is_of_objects(text) {
            true => Self::Objects(text.parse()?),
            false => Self::Hosts(text.parse()?),
        })
    }

    const fn events(&self) -> usize {
        match self {
            Self::Hosts(script) => script.events.len(),
            Self::Objects(script) => script.events.len(),
        }
    }

    /// Prints the shortest script that breaks the same invariant.
    fn report(&self) -> Result<ExitCode> {
        let shortest = match self {
            Self::Hosts(script) => shrink(script)?.map(|(script, why)| (script.to_string(), why)),
            Self::Objects(script) => {
                script.shrink()?.map(|(script, why)| (script.to_string(), why))
            }
        };
        let Some((script, violation)) = shortest else {
            println!("every invariant holds");
            return Ok(ExitCode::SUCCESS);
        };
        println!(
            "the shortest script that was found; a test runs all in the folders `scripts` of crates/sim/src/world:\n"
        );
        println!("# {violation}\n{script}");
        Ok(ExitCode::FAILURE)
    }
}
