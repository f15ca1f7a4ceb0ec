//! What the targets share: any policy of up to three limits.

use arbitrary::Arbitrary;
use tidegate_gate::{ConfigError, Limit, Limits, Policy};

/// A number that is often small: the interesting configurations and times lie close together.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Amount {
    Tiny(u8),
    Small(u16),
    Seconds(u16),
    Any(u64),
    /// As much below the largest.
    FromTheEnd(u8),
}

impl Amount {
    pub fn value(self) -> u64 {
        match self {
            Self::Tiny(value) => value.into(),
            Self::Small(value) => value.into(),
            Self::Seconds(value) => u64::from(value) * 1_000_000,
            Self::Any(value) => value,
            Self::FromTheEnd(below) => u64::MAX - u64::from(below),
        }
    }
}

/// What [`Limit::from_parameters`] takes: a number for the algorithm, and as many others as it wants.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct Parameters {
    algorithm: u8,
    others: [Amount; 6],
}

impl Parameters {
    /// The limiter with the most of these parameters, or with the nearest period that can be had.
    fn limit(self) -> Option<Limit> {
        let others = self.others.map(Amount::value);
        let parameters = [&[u64::from(self.algorithm % 16)], others.as_slice()].concat();
        let limit = (1..=parameters.len()).rev().find_map(|length| {
            let mut parameters = parameters[..length].to_vec();
            Limit::from_parameters(&parameters)
                .or_else(|error| {
                    if let ConfigError::UnevenSegments { nearest, .. } = error {
                        parameters[2] = nearest.0;
                    }
                    Limit::from_parameters(&parameters)
                })
                .ok()
        })?;
        assert_eq!(Limit::from_parameters(&limit.parameters()), Ok(limit));
        Some(limit)
    }
}

/// The limits of those that can be built.
pub fn limits(parameters: &[Parameters; 3]) -> Option<Limits> {
    let limits = parameters.iter().filter_map(|parameters| parameters.limit()).collect();
    let limits = Policy::of_limits(limits).ok()?.limits().clone();
    assert_eq!(limits.parts().len(), 1, "all count by the whole key");
    Some(limits)
}
