//! The shape of a limit in the policy file: all fields of all algorithms. Each algorithm reads its own fields.

mod build;

pub(crate) use build::{required, text};

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde::Deserialize;

use super::file::Name;
use super::units::{Percent, RateForm, Span, Whole, WindowForm};
use crate::fnv::fnv1a;
use crate::key::Depth;
use crate::limits::NamedLimit;
use crate::object::object;

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AlgorithmName {
    TokenBucket,
    FixedWindow,
    SlidingWindow,
    SlidingLog,
    Concurrency,
    Connections,
    Budget,
    FleetUsage,
    Utilization,
    Suppression,
    Penalty,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EstimatorForm {
    NewestPart,
    ModifiedMean,
    LinearAdmitted,
}

/// How full the bucket of a new key is, or where windows start.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Start {
    Full,
    Empty,
    Aligned,
    First,
}

impl Start {
    /// The error about a start that the algorithm does not have.
    pub(crate) fn unfit(self, expected: &str, algorithm: &str) -> String {
        let found = match self {
            Self::Full => "full",
            Self::Empty => "empty",
            Self::Aligned => "aligned",
            Self::First => "first",
        };
        format!("`start`: expected {expected} for `{algorithm}`, found {found:?}")
    }
}

/// Every field that any algorithm has. Which fields belong together is checked after reading, so that an
/// error about one field names that field's place and not the place of the whole table.
macro_rules! limit_form {
    ($($field:ident: $form:ty,)*) => {
        #[derive(Clone, Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct LimitForm {
            algorithm: Option<AlgorithmName>,
            name: Option<Name>,
            depth: Option<Depth>,
            /// Only for an override: other limits in place of other numbers.
            limits: Option<Vec<LimitEntry>>,
            $(pub(crate) $field: Option<$form>,)*
        }

        impl LimitForm {
            /// The fields that are set, except those that every limit may have.
            fn given(&self) -> impl Iterator<Item = &'static str> {
                let given = [
                    ("limits", self.limits.is_some()),
                    $((stringify!($field), self.$field.is_some()),)*
                ];
                given.into_iter().filter(|(_, given)| *given).map(|(field, _)| field)
            }

            /// This limit with the fields that the other one sets.
            fn but(&self, other: &Self) -> Self {
                Self {
                    algorithm: other.algorithm.or(self.algorithm),
                    name: other.name.clone().or_else(|| self.name.clone()),
                    depth: other.depth.or(self.depth),
                    limits: None,
                    $($field: other.$field.clone().or_else(|| self.$field.clone()),)*
                }
            }
        }
    };
}

limit_form! {
    capacity: Whole<1>,
    rate: RateForm,
    limit: Whole<1>,
    period: Span,
    segments: Whole<0>,
    start: Start,
    rates: Vec<WindowForm>,
    min_gap: Span,
    count_denied: bool,
    time_to_live: Span,
    max_leases: Whole<1>,
    expiry: Span,
    max_owners: Whole<1>,
    most: Whole<1>,
    time: Span,
    max_holders: Whole<1>,
    reserve: Percent,
    good: Percent,
    bad: Percent,
    delay: Span,
    full: Span,
    estimator: EstimatorForm,
    ramp: Whole<1>,
    refusals: Whole<1>,
    within: Span,
    duration: Span,
    max: Span,
    forgive_after: Span,
}

/// A limit and its form, of which an override may replace some fields.
#[derive(Clone, Debug)]
pub(super) struct LimitEntry {
    form: LimitForm,
    pub(super) limit: NamedLimit,
}

impl<'de> Deserialize<'de> for LimitEntry {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let example =
            "a limit such as { algorithm = \"fixed_window\", limit = 10, period = \"1s\" }";
        object(deserializer, example, Self::new)
    }
}

impl LimitEntry {
    fn new(form: LimitForm) -> Result<Self, String> {
        let name = form.name.clone().map(String::from).unwrap_or_default();
        let depth = form.depth.unwrap_or(Depth::Whole);
        let tag = if name.is_empty() { 0 } else { fnv1a(name.bytes()) };
        let limit = NamedLimit { name, depth, limit: form.limit()?, tag };
        Ok(Self { form, limit })
    }

    /// The limits of an override: either its own limits, or the policy's only limit with other numbers.
    pub(super) fn overridden(
        limits: &[Self],
        mut own: LimitForm,
    ) -> Result<Vec<NamedLimit>, String> {
        match (own.limits.take(), limits) {
            (Some(limits), _) if own.given().next().is_none() && own.algorithm.is_none() => {
                Ok(limits.into_iter().map(|entry| entry.limit).collect())
            }
            (Some(_), _) => Err("expected either `limits` or other fields, found both".into()),
            (None, [only]) => Ok([Self::new(only.form.but(&own))?.limit].into()),
            (None, _) => Err(
                "expected `limits` with all limits of these keys, because the policy has several; \
                     found fields of one limit"
                    .into(),
            ),
        }
    }
}
