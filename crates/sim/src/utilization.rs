//! The utilisation shedder on a load that is wholly bad, and then gone.

use tidegate_core::shed::utilization::{Class, Config, State, Thresholds, Timing};
use tidegate_core::shed::{Probability, Share};
use tidegate_core::{ConfigError, Timestamp};

/// The classes that are shed, one after the other.
pub const CLASSES: u16 = 2;

/// What holds after one measurement.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Since the first measurement.
    pub second: u64,
    /// The utilisation that was measured.
    pub signal: Share,
    /// The shed amount, in parts per million.
    pub amount_ppm: i64,
    /// The probability with which each class is shed, the least important first.
    pub drop: [Probability; 2],
}

/// All workers busy for 200 s and then none, measured every 8 s: the source's constants.
///
/// # Errors
/// None: the constants are valid.
pub fn run() -> Result<Vec<Sample>, ConfigError> {
    let config = Config::new(Thresholds::DEFAULT, Timing::DEFAULT, CLASSES)?;
    let mut state = State::default();
    let sample = |second| {
        let signal = if second <= 200 { Share::WHOLE } else { Share::NONE };
        config.observe(&mut state, Timestamp((1_700_000_000 + second) * 1_000_000), signal);
        Sample {
            second,
            signal,
            amount_ppm: config.amount_ppm(&state),
            drop: [0, 1].map(|class| config.drop_probability(&state, Class(class))),
        }
    };
    Ok((0..=384).step_by(8).map(sample).collect())
}
