//! Parameters of any policy.

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use tidegate_gate::{CalendarFacts, ConfigError, Kind, Limit, Limits, Policy, Timestamp};

use crate::Amount;

/// The numbers that [`Limit::from_parameters`] takes: the algorithm, and as many parameters as it has.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct Parameters {
    algorithm: u8,
    shadow: bool,
    others: [Amount; 9],
}

/// What comes before the numbers of a limit in shadow.
const SHADOW: u64 = 200;

/// A policy for each value of `on_change`.
pub static RULES: LazyLock<[Policy; 3]> = LazyLock::new(|| {
    ["reset", "keep", "proportional"].map(|rule| {
        let limits = "limits = [{ algorithm = 'fixed_window', limit = 1, period = '1s' }]";
        Policy::parse(rule, &format!("on_change = '{rule}'\n{limits}")).expect("a policy")
    })
});

/// The limits of the parameters that are valid; `None` if none of them are.
pub fn limits(parameters: &[Parameters; 3]) -> Option<Limits> {
    let each = parameters.iter().filter_map(|parameters| Some((parameters, parameters.limit()?)));
    let numbers = each.map(|(parameters, limit)| {
        // a limit on leases has promises of its own, which a refusal that does not count would break
        let shadow = parameters.shadow && limit.kind() == Kind::Rate;
        let numbers: Vec<u64> =
            shadow.then_some(SHADOW).into_iter().chain(limit.parameters()).collect();
        [vec![u64::try_from(numbers.len()).expect("a few")], numbers].concat()
    });
    let limits =
        Policy::of_parameters(&numbers.collect::<Vec<_>>().concat()).ok()?.limits().clone();
    assert_eq!(limits.records().len(), 1, "all limits count by the whole key");
    Some(limits)
}

impl Parameters {
    /// The limit with as many of these parameters as possible, or with the nearest valid period.
    fn limit(self) -> Option<Limit> {
        let parameters = self.numbers();
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
        assert_eq!(Limit::from_parameters(&limit.parameters()), Ok(limit.clone()));
        // a policy file knows the data of its time zones; only stored states have zones without them
        let is_known = |calendar: CalendarFacts<'_>| calendar.timezone().until > Timestamp::EPOCH;
        limit.calendar().is_none_or(is_known).then_some(limit)
    }

    /// The parameters. Those that would hardly ever be valid by chance are moved close to a valid value.
    fn numbers(self) -> Vec<u64> {
        let algorithm = match self.algorithm % 16 {
            15 => HOLDING,
            algorithm => u64::from(algorithm), // with room for algorithms to come
        };
        let mut others = self.others.map(Amount::value);
        match algorithm {
            // few places, which fill soon: thousands would only be slow
            6 | 7 | 11 => others[2] %= MOST_PLACES,
            8 => others[3] %= MOST_PLACES,
            // `good` and `bad`, in parts per million
            9 => {
                others[0] %= MILLION;
                others[1] %= MILLION;
                others[..2].sort_unstable();
            }
            // few holds of a bucket, window or log
            HOLDING => {
                others[0] %= MOST_PLACES;
                others[3] %= 2;
                others[4] = 1 + others[4] % 4;
            }
            // an estimator without a ramp
            10 if others[2] > u64::from(u16::MAX) => others[2] = (1 + others[2] % 2) << 32,
            _ => {}
        }
        [&[algorithm], others.as_slice()].concat()
    }
}

/// The number of limits that hold.
const HOLDING: u64 = 100;
const MOST_PLACES: u64 = 18;
const MILLION: u64 = 1_000_000;
