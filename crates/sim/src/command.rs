//! `tidegate-sim world`: histories of one seed after another, until one breaks an invariant.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rand::Rng;
use tidegate_sim::world::{History, Script, Tally, Topology};

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
    /// Who asks whom
    #[arg(long, default_value_t = Topology::Hosts)]
    topology: Topology,
    /// Lets callers reserve units, and commit or forget what they reserved
    #[arg(long)]
    reservations: bool,
    /// Runs this script, and no seed
    #[arg(long, conflicts_with_all = ["seed", "steps", "seconds", "topology", "reservations"])]
    script: Option<PathBuf>,
}

const EXAMPLES: &str = "Examples:
  cargo run -p tidegate-sim -- world                              random seeds for a minute
  cargo run -p tidegate-sim -- world --seed 1 --steps 1000000     as many histories from seed 1 on
  cargo run -p tidegate-sim -- world --seed 42 --steps 1          the history of seed 42
  cargo run -p tidegate-sim -- world --topology objects           random seeds of the Worker's world
  cargo run -p tidegate-sim -- world --reservations               callers reserve and commit
  cargo run -p tidegate-sim -- world --script FILE                a script that was printed before";

/// How often the progress is printed.
const PROGRESS: Duration = Duration::from_secs(5);

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    if let Some(path) = &arguments.script {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let script = text.parse().with_context(|| path.display().to_string())?;
        return report(&script);
    }
    let first = arguments.seed.unwrap_or_else(|| rand::rng().next_u64());
    let most_steps = arguments.steps.unwrap_or(u64::MAX);
    let seconds = arguments.seconds.or(arguments.steps.is_none().then_some(60));
    let began = Instant::now();
    let (mut steps, mut told) = (0, began);
    let (mut seed, mut tally) = (first, Tally::default());
    loop {
        let history = match arguments.reservations {
            true => History::of_seed_with_reservations(arguments.topology, seed)?,
            false => History::of_seed(arguments.topology, seed)?,
        };
        steps += u64::try_from(history.script.events.len())?;
        tally.merge(&history.tally);
        if let Some(violation) = history.violation {
            println!("seed {seed}: {violation}");
            return report(&history.script);
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

/// Prints the shortest script that breaks the same invariant.
fn report(script: &Script) -> Result<ExitCode> {
    let Some((script, violation)) = script.shrink()? else {
        println!("every invariant holds");
        return Ok(ExitCode::SUCCESS);
    };
    println!(
        "the shortest script that was found; a test runs all in crates/sim/src/world/scripts:\n"
    );
    println!("# {violation}\n{script}");
    Ok(ExitCode::FAILURE)
}
