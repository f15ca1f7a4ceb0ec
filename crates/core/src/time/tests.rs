use proptest::prelude::*;

use super::{Micros, Timestamp};

#[test]
fn a_started_second_or_millisecond_counts_as_a_whole_one() {
    for (span, secs, millis) in [
        (0, 0, 0),
        (1, 1, 1),
        (1_000, 1, 1),
        (1_001, 1, 2),
        (999_999, 1, 1_000),
        (1_000_000, 1, 1_000),
        (1_000_001, 2, 1_001),
        (u64::MAX, 18_446_744_073_710, 18_446_744_073_709_552),
    ] {
        assert_eq!((Micros(span).as_secs_ceil(), Micros(span).as_millis_ceil()), (secs, millis));
    }
}

proptest! {
    /// So a client that waits the seconds is never too early, and waits less than a second too long.
    #[test]
    fn the_seconds_of_a_span_are_the_fewest_that_cover_it(span: u64) {
        for (units, unit) in [
            (Micros(span).as_secs_ceil(), 1_000_000),
            (Micros(span).as_millis_ceil(), 1_000),
        ] {
            let covered = u128::from(units) * unit;
            prop_assert!((u128::from(span)..u128::from(span) + unit).contains(&covered));
        }
    }

    /// The three cases of `taken_after`.
    #[test]
    fn a_decision_is_taken_at_the_newest_time_for_one_period_back(
        newest: u64,
        period in 0..1_000_u64,
        ahead in -2_000..2_000_i64,
    ) {
        let now = newest.saturating_add_signed(ahead);
        let stands_still = now < newest && newest - now <= period;
        let taken = Timestamp(now).taken_after(Timestamp(newest), Micros(period));
        prop_assert_eq!(taken, Timestamp(if stands_still { newest } else { now }));
    }
}
