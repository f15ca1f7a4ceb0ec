//! `cargo xtask test`: runs the test suites, in three layers.

mod circles;
mod suites;
mod tally;
mod trees;

use std::time::Instant;

use anyhow::{Result, bail};
use clap::{ValueEnum, builder::PossibleValue};

use self::tally::Tally;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// `fast` or `everything`, or else what a change must pass; then the suites to run, or else all of the layer
    what: Vec<What>,
}

/// How much is run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Layer {
    /// Formatting, circles, one clippy, unit tests and vectors: some minutes
    Fast,
    /// What a change must pass, in a quarter of an hour
    #[value(skip)]
    Change,
    /// All tests: every night and before a release
    Everything,
}

/// The suites, with fast ones first.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Suite {
    /// Formatting, circles of imports, and clippy
    Lint,
    /// All tests that need only Rust
    Rust,
    /// The core without an operating system; the Worker and the guest are built and within their sizes
    Wasm,
    /// The npm package and its sizes, in Node from an installation, its types, and what its JavaScript may compute
    Npm,
    /// Redis, the built Worker in workerd and behind a browser, the commands, and parity of all backends
    System,
    /// Clippy for each set of features, and the unit tests that need other features (only in `everything`)
    Features,
    /// What is published, with the oldest compilers that it promises (only in `everything`)
    Msrv,
    /// The tests that depend on the server's version, on other versions of Redis and on Valkey (only in `everything`)
    Servers,
    /// Random operations, stored bytes and policy files, by libFuzzer for a minute (only in `everything`)
    Fuzz,
}

impl Suite {
    /// The first layer that runs the suite.
    fn layer(self) -> Layer {
        match self {
            Self::Lint | Self::Rust => Layer::Fast,
            Self::Wasm | Self::Npm | Self::System => Layer::Change,
            Self::Features | Self::Msrv | Self::Servers | Self::Fuzz => Layer::Everything,
        }
    }

    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// A word of the command line.
#[derive(Clone, Copy)]
enum What {
    Layer(Layer),
    Suite(Suite),
}

impl ValueEnum for What {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [What; 11] = [
            What::Layer(Layer::Fast),
            What::Layer(Layer::Everything),
            What::Suite(Suite::Lint),
            What::Suite(Suite::Rust),
            What::Suite(Suite::Wasm),
            What::Suite(Suite::Npm),
            What::Suite(Suite::System),
            What::Suite(Suite::Features),
            What::Suite(Suite::Msrv),
            What::Suite(Suite::Servers),
            What::Suite(Suite::Fuzz),
        ];
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::Layer(layer) => layer.to_possible_value(),
            Self::Suite(suite) => suite.to_possible_value(),
        }
    }
}

/// The layer and the suites that the words of the command line name.
fn chosen(what: &[What]) -> (Layer, Vec<Suite>) {
    let layer = |what: &What| match what {
        What::Layer(layer) => Some(*layer),
        What::Suite(_) => None,
    };
    let named = what.iter().filter_map(|what| match what {
        What::Suite(suite) => Some(*suite),
        What::Layer(_) => None,
    });
    let (layer, named) = (what.iter().filter_map(layer).max(), named.collect::<Vec<_>>());
    let layer = layer.unwrap_or(Layer::Change);
    let of_layer = Suite::value_variants().iter().copied().filter(|suite| suite.layer() <= layer);
    (layer, if named.is_empty() { of_layer.collect() } else { named })
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let (layer, suites) = chosen(&arguments.what);
    let mut tally = Tally::default();
    let started = Instant::now();
    for (place, suite) in (1..).zip(&suites) {
        let name = suite.name();
        eprintln!("\x1b[1m==> suite {name} ({place} of {})\x1b[0m", suites.len());
        let since = Instant::now();
        // the other suites run even if this one fails
        if let Err(error) = suites::run(*suite, layer, &mut tally) {
            tally.failures.push(format!("{name}: {error:#}"));
        }
        tally.closing_lines.push(format!("suite {name}: {:.0?}", since.elapsed()));
    }
    let failed = tally.print()?;
    println!("all suites: {:.0?}", started.elapsed());
    println!("{} passed, {failed} failed, {} skipped", tally.passed, tally.skipped);
    if failed > 0 {
        bail!("{failed} failed");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::run::root;

    #[test]
    fn the_nightly_workflow_runs_every_suite() {
        let file = root().join(".github/workflows/everything.yml");
        let suites: Vec<String> =
            Suite::value_variants().iter().map(|suite| suite.name()).collect();
        let expected = format!("suite: [{}]", suites.join(", "));
        let text = fs::read_to_string(file).unwrap();
        assert!(text.contains(&expected), "expected {expected}");
    }

    #[test]
    fn each_layer_runs_what_the_one_before_it_runs() {
        let names = |what: &[What]| chosen(what).1.iter().map(|suite| suite.name()).collect();
        let of_fast: Vec<String> = names(&[What::Layer(Layer::Fast)]);
        let of_change: Vec<String> = names(&[]);
        assert_eq!(of_fast, ["lint", "rust"]);
        assert_eq!(of_change, ["lint", "rust", "wasm", "npm", "system"]);
        let of_everything: Vec<String> = names(&[What::Layer(Layer::Everything)]);
        assert_eq!(of_everything.len(), Suite::value_variants().len());
        let one = [What::Layer(Layer::Everything), What::Suite(Suite::Npm)];
        assert_eq!(names(&one), ["npm"]);
    }
}
