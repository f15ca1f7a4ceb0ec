//! A simulation of the utilisation shedder under a wholly bad signal that then vanishes.

use tidegate_core::shed::utilization::{Class, Config, State, Thresholds, Timing};
use tidegate_core::shed::{Probability, Share};
use tidegate_core::{ConfigError, Timestamp};

/// The number of classes that may be shed.
pub const CLASSES: u16 = 2;

/// The state of the shedder after one measurement.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The time since the first measurement.
    pub second: u64,
    /// The measured utilisation.
    pub signal: Share,
    /// The shed amount, in parts per million.
    pub amount_ppm: i64,
    /// The probability with which each class is shed, the least important first.
    pub drop: [Probability; 2],
}

/// Runs the shedder with the source's constants: all workers are busy for 200 s and then none,
/// measured every 8 s.
///
/// # Errors
/// Never returns an error, because the constants are valid.
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
