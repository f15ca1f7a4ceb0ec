//! The shape of a limit in the policy file.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use tidegate_core::shed::penalty;
use tidegate_core::window::{fixed, log, sliding};
use tidegate_core::{Micros, bucket};

use super::file::Name;
use super::units::{RateForm, Span, Whole, WindowForm};
use crate::key::Depth;
use crate::limit::Limit;
use crate::limits::NamedLimit;

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Algorithm {
    TokenBucket,
    FixedWindow,
    SlidingWindow,
    SlidingLog,
    Penalty,
}

/// What a key never seen has.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Start {
    Full,
    Empty,
}

/// Every field that any algorithm has; which of them belong together is checked afterwards, so
/// that an error names the field's own place and not that of the whole table.
macro_rules! limit_form {
    ($($field:ident: $form:ty,)*) => {
        #[derive(Clone, Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct LimitForm {
            algorithm: Option<Algorithm>,
            name: Option<Name>,
            depth: Option<Depth>,
            /// Of an override alone: instead of other numbers, other limits.
            limits: Option<Vec<LimitEntry>>,
            $($field: Option<$form>,)*
        }

        impl LimitForm {
            /// The fields that not every limit has.
            fn given(&self) -> impl Iterator<Item = &'static str> {
                let given = [
                    ("limits", self.limits.is_some()),
                    $((stringify!($field), self.$field.is_some()),)*
                ];
                given.into_iter().filter(|(_, given)| *given).map(|(field, _)| field)
            }

            /// This limit with what the other says differently.
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
    refusals: Whole<1>,
    within: Span,
    duration: Span,
    max: Span,
    forgive_after: Span,
}

/// A limit, and how it was written: an override may change parts of it.
#[derive(Clone, Debug)]
pub(super) struct LimitEntry {
    form: LimitForm,
    pub(super) limit: NamedLimit,
}

impl<'de> Deserialize<'de> for LimitEntry {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(LimitVisitor)
    }
}

/// Checks while the table is being visited, so that an error still knows which table it was.
struct LimitVisitor;

impl<'de> Visitor<'de> for LimitVisitor {
    type Value = LimitEntry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a limit such as { algorithm = \"fixed_window\", limit = 10, period = \"1s\" }")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LimitEntry, A::Error> {
        let form = LimitForm::deserialize(MapAccessDeserializer::new(map))?;
        LimitEntry::new(form).map_err(A::Error::custom)
    }
}

impl LimitEntry {
    fn new(form: LimitForm) -> Result<Self, String> {
        let name = form.name.clone().map(String::from).unwrap_or_default();
        let depth = form.depth.unwrap_or(Depth::Whole);
        let limit = NamedLimit { name, depth, limit: form.limit()? };
        Ok(Self { form, limit })
    }

    /// The limits of an override: all of its own, or the only one with other numbers.
    pub(super) fn overridden(
        limits: &[Self],
        mut own: LimitForm,
    ) -> Result<Vec<NamedLimit>, String> {
        match (own.limits.take(), limits) {
            (Some(limits), _) if own.given().next().is_none() && own.algorithm.is_none() => {
                Ok(limits.into_iter().map(|entry| entry.limit).collect())
            }
            (Some(_), _) => Err("found `limits` beside other fields, allowed is it alone".into()),
            (None, [only]) => Ok([Self::new(only.form.but(&own))?.limit].into()),
            (None, _) => {
                Err("the policy has several limits; allowed is `limits`, all of them anew".into())
            }
        }
    }
}

impl LimitForm {
    fn limit(&self) -> Result<Limit, String> {
        let error = |error: tidegate_core::ConfigError| error.to_string();
        match required("algorithm", self.algorithm)? {
            Algorithm::TokenBucket => {
                self.has_no_other("token_bucket", &["capacity", "rate", "start"])?;
                let capacity = required("capacity", self.capacity)?.0;
                let rate = required("rate", self.rate)?.0;
                let bucket = bucket::Config::new(capacity, rate).map_err(error)?;
                Ok(Limit::TokenBucket(match self.start {
                    Some(Start::Empty) => bucket.starting_empty(),
                    Some(Start::Full) | None => bucket,
                }))
            }
            Algorithm::FixedWindow => {
                self.has_no_other("fixed_window", &["limit", "period"])?;
                let limit = required("limit", self.limit)?.0;
                let period = required("period", self.period)?.0;
                fixed::Config::new(limit, period).map(Limit::FixedWindow).map_err(error)
            }
            Algorithm::SlidingWindow => {
                self.has_no_other("sliding_window", &["limit", "period", "segments"])?;
                let limit = required("limit", self.limit)?.0;
                let period = required("period", self.period)?.0;
                let segments = self.segments.map_or(1, |segments| segments.0);
                sliding::Config::new(limit, period, segments)
                    .map(Limit::SlidingWindow)
                    .map_err(error)
            }
            Algorithm::SlidingLog => {
                self.has_no_other("sliding_log", &["rates", "min_gap", "count_denied"])?;
                let rates = required("rates", self.rates.as_ref())?;
                let windows: Vec<log::Window> = rates.iter().map(|window| window.0).collect();
                let min_gap = self.min_gap.map_or(Micros::ZERO, |span| span.0);
                let counted = self.count_denied.unwrap_or(false);
                let denied = if counted { log::Denied::Counted } else { log::Denied::Forgotten };
                log::Config::new(&windows, min_gap, denied).map(Limit::SlidingLog).map_err(error)
            }
            Algorithm::Penalty => {
                let fields = &["refusals", "within", "duration", "max", "forgive_after"];
                self.has_no_other("penalty", fields)?;
                let duration = required("duration", self.duration)?.0;
                let terms = penalty::Terms {
                    refusals: required("refusals", self.refusals)?.0,
                    within: required("within", self.within)?.0,
                    duration,
                    max: self.max.map_or(duration, |span| span.0),
                    forgive_after: self.forgive_after.map_or(duration, |span| span.0),
                };
                penalty::Config::new(terms).map(Limit::Penalty).map_err(error)
            }
        }
    }

    fn has_no_other(&self, algorithm: &str, allowed: &[&str]) -> Result<(), String> {
        match self.given().find(|field| !allowed.contains(field)) {
            Some(field) => Err(format!(
                "found `{field}`, which `{algorithm}` does not have; allowed are `{}`",
                allowed.join("`, `")
            )),
            None => Ok(()),
        }
    }
}

fn required<T>(field: &str, value: Option<T>) -> Result<T, String> {
    value.ok_or_else(|| format!("missing field `{field}`"))
}
