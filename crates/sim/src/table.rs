//! The tables in `golden/`, which the pictures show and the tests compare.

use std::fmt::Write as _;

use tidegate_core::shed::reporter::LocalCap;
use tidegate_core::shed::suppression::Estimator;

use crate::suppression::{Scenario, Second, run};
use crate::utilization;

/// Every estimator, with the name of its column.
pub const ESTIMATORS: [(&str, Estimator); 3] = [
    ("linear_admitted", Estimator::LinearAdmitted { ramp: 2 }),
    ("modified_mean", Estimator::ModifiedMean),
    ("newest_part", Estimator::NewestPart),
];

/// The seconds whose mean a row shows. They have enough requests that chance moves a row by only
/// about 1 %.
pub const SECONDS_A_ROW: usize = 2;

/// A simulated table with rows of 2 s.
#[derive(Clone, Debug)]
pub struct Table {
    /// The names of the admitted columns.
    pub names: Vec<&'static str>,
    /// The rows in order of time.
    pub rows: Vec<Row>,
}

/// Rates over one row, in thousandths of the limit.
#[derive(Clone, Debug)]
pub struct Row {
    /// The start of the row, in seconds from the step.
    pub second: i64,
    /// The offered rate.
    pub offered: u64,
    /// The admitted rate of each column.
    pub admitted: Vec<u64>,
}

/// Simulates the step under each estimator.
///
/// # Errors
/// Never returns an error, because the scenario is valid.
pub fn step() -> anyhow::Result<Table> {
    table(ESTIMATORS.map(|(name, estimator)| (name, Scenario::step(estimator))))
}

/// Simulates two hot reporters, without and with local caps.
///
/// # Errors
/// Never returns an error, because the scenario is valid.
pub fn local_cap() -> anyhow::Result<Table> {
    let scenario = Scenario::two_hot_reporters;
    table([("without_cap", scenario(LocalCap::Off)), ("with_cap", scenario(LocalCap::On))])
}

/// Runs the scenarios, which all offer the same load, and lists their admitted rates.
fn table<const N: usize>(scenarios: [(&'static str, Scenario); N]) -> anyhow::Result<Table> {
    let names = scenarios.iter().map(|(name, _)| *name).collect();
    let runs = scenarios.iter().map(|(_, scenario)| run(scenario));
    let runs = runs.collect::<anyhow::Result<Vec<Vec<Second>>>>()?;
    let (_, scenario) = &scenarios[0];
    let mean = |seconds: &[Second], of: fn(&Second) -> u64| {
        let units: u64 = seconds.iter().map(of).sum();
        let limit = scenario.limit * u64::try_from(seconds.len()).unwrap_or(1);
        (units * 1_000 + limit / 2) / limit
    };
    let idle = i64::try_from(scenario.phases[0].seconds)?;
    let mut rows = Vec::new();
    for (index, offered) in runs[0].chunks(SECONDS_A_ROW).enumerate() {
        let from = index * SECONDS_A_ROW;
        let column = |run: &Vec<Second>| mean(&run[from..from + offered.len()], |s| s.admitted);
        rows.push(Row {
            second: i64::try_from(from)? - idle,
            offered: mean(offered, |second| second.offered),
            admitted: runs.iter().map(column).collect(),
        });
    }
    Ok(Table { names, rows })
}

impl Table {
    /// The table as comma-separated values. Rates are multiples of the limit.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut csv = format!("second,offered,{}\n", self.names.join(","));
        for row in &self.rows {
            let _ = write!(csv, "{},{}", row.second, thousandths(row.offered));
            for &admitted in &row.admitted {
                let _ = write!(csv, ",{}", thousandths(admitted));
            }
            csv.push('\n');
        }
        csv
    }
}

/// The trajectory of the utilisation shedder as comma-separated values.
///
/// # Errors
/// Never returns an error, because the constants are valid.
pub fn utilization_csv() -> anyhow::Result<String> {
    let mut csv = String::from("second,utilization_ppm,amount_ppm,drop_class_0,drop_class_1\n");
    for sample in utilization::run()? {
        let [least, next] = sample.drop.map(|drop| drop.units());
        let (second, signal) = (sample.second, sample.signal.ppm());
        let _ = writeln!(csv, "{second},{signal},{},{least},{next}", sample.amount_ppm);
    }
    Ok(csv)
}

fn thousandths(n: u64) -> String {
    format!("{}.{:03}", n / 1_000, n % 1_000)
}
