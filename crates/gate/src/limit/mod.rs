//! One limit: a limiter of any algorithm, whose state is plain words.
//!
//! [`Limit`] is a configuration of any algorithm, and `operate` does with it what `core` does with one. Each file named after an
//! algorithm implements the trait `Algorithm`: its name and fields in the policy file, and its numbers. `form` and `build` read
//! a limit from the policy file.

mod algorithm;
mod budget;
pub(crate) mod build;
mod calendar_window;
mod concurrency;
mod connections;
mod describe;
mod fixed_window;
mod fleet_usage;
pub(crate) mod form;
mod holding;
mod named;
mod operate;
mod parameters;
mod penalty;
mod request;
mod sliding_log;
mod sliding_window;
pub mod suppression;
#[cfg(test)]
mod tests;
mod token_bucket;
mod utilization;

pub(crate) use algorithm::Algorithm;
pub use algorithm::Cause;
pub(crate) use algorithm::scaled;
pub(crate) use budget::DEFAULT_MAX_HOLDERS;
#[cfg(feature = "timezones")]
pub use calendar_window::zone_data;
pub use calendar_window::{CalendarFacts, Timezone};
pub(crate) use describe::{span, wait};
pub use named::NamedLimit;
pub(crate) use operate::KnownFor;
pub(crate) use parameters::{read, write, write_identity};
pub use request::{Budget, Grant, Offered, Operation, OperationError, Request, Unspent};

/// Calls a macro with all algorithms, or with those that a policy file names (`named`), and with what else it is given. Here alone
/// an algorithm is added to the others.
macro_rules! algorithms {
    (named $macro:ident $($rest:tt)*) => {
        $crate::limit::algorithms! { @each [] $macro $($rest)* }
    };
    (@each [$($more:tt)*] $macro:ident $($rest:tt)*) => {
        $macro! {
            [
                /// [`tidegate_core::bucket`]
                TokenBucket(tidegate_core::bucket::Config),
                /// [`tidegate_core::window::fixed`]
                FixedWindow(tidegate_core::window::fixed::Config),
                /// [`tidegate_core::window::sliding`]
                SlidingWindow(tidegate_core::window::sliding::Config),
                /// [`tidegate_core::window::log`]
                SlidingLog(tidegate_core::window::log::Config),
                /// [`tidegate_core::lease::concurrency`]
                Concurrency(tidegate_core::lease::concurrency::Config),
                /// [`tidegate_core::lease::connections`]
                Connections(tidegate_core::lease::connections::Config),
                /// [`tidegate_core::lease::budget`], whose units come out of the policy's limits on units over time
                Budget(tidegate_core::lease::budget::Config),
                /// [`tidegate_core::shed::fleet`]
                Fleet(tidegate_core::shed::fleet::Config),
                /// [`tidegate_core::shed::utilization`]
                Utilization(tidegate_core::shed::utilization::Config),
                /// [`tidegate_core::shed::suppression`]
                Suppression(tidegate_core::shed::suppression::Config),
                /// [`tidegate_core::shed::penalty`]
                Penalty(tidegate_core::shed::penalty::Config),
                /// [`tidegate_core::window::calendar`]
                Calendar($crate::limit::calendar_window::Config),
                $($more)*
            ]
            $($rest)*
        }
    };
    ($macro:ident $($rest:tt)*) => {
        $crate::limit::algorithms! {
            @each [
                /// [`tidegate_core::hold`]: one of the others, under a policy with `reservations`
                Holding($crate::limit::holding::Config),
            ]
            $macro $($rest)*
        }
    };
}

/// Declares [`Limit`].
macro_rules! limit {
    ([$($(#[$about:meta])* $name:ident($config:ty),)*]) => {
        /// A configured limiter.
        ///
        /// The state has [`words`](Self::words) words, which are all zero for a new key. A limiter refuses a state
        /// of another length with [`OperationError::InvalidState`].
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Limit {
            $($(#[$about])* $name($config),)*
        }

        $(impl Variant for $config {
            fn of(limit: &Limit) -> Option<&Self> {
                match limit {
                    Limit::$name(config) => Some(config),
                    _ => None,
                }
            }
        })*
    };
}

/// Evaluates an expression about the limiter, for every algorithm.
macro_rules! ask {
    ([$($(#[$about:meta])* $name:ident($config:ty),)*] $limit:expr, |$limiter:ident| $question:expr) => {
        match $limit {
            $(Limit::$name($limiter) => $question,)*
        }
    };
    ($limit:expr, |$limiter:ident| $question:expr) => {
        $crate::limit::algorithms!(ask $limit, |$limiter| $question)
    };
}

algorithms!(limit);
use {algorithms, ask};

/// A configuration that a limit may have.
pub(crate) trait Variant: Sized {
    /// The configuration of a limit, if the limit has this algorithm.
    fn of(limit: &Limit) -> Option<&Self>;
}

/// The kind of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// It limits units over time.
    Rate,
    /// It limits places that are held at once.
    Lease,
    /// It sheds load.
    Shed,
    /// It grants units that holders spend without asking.
    Budget,
}
