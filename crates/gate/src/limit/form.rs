//! The shape of a limit in the policy file: all fields of all algorithms. Each algorithm reads its own fields.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::algorithm::Algorithm;
use super::calendar_window::form::{Anchor, Period};
use super::{Kind, Limit, NamedLimit, algorithms};
use crate::fnv::fnv1a;
use crate::key::Depth;
use crate::name::Name;
use crate::units::{Percent, RateForm, Span, WindowForm};
use tidegate_core::shed::Share;
use tidegate_form::Bounded;
use tidegate_form::{Error, Form, Node, Value, form};

macro_rules! algorithm_name {
    ([$($(#[$about:meta])* $name:ident($config:ty),)*]) => {
        #[derive(Clone, Copy, Debug)]
        pub(super) enum AlgorithmName {
            $($name,)*
        }

        impl Form for AlgorithmName {
            fn read(node: &Node<'_>) -> Result<Self, Error> {
                node.one_of(&[$((<$config as Algorithm>::NAME, Self::$name),)*])
            }
        }

        /// The names of the algorithms, and the fields of each.
        const FIELDS: &[(&str, &[&str])] =
            &[$((<$config as Algorithm>::NAME, <$config as Algorithm>::FIELDS),)*];
    };
}

algorithms!(named algorithm_name);

#[derive(Clone, Copy, Debug)]
pub(crate) enum EstimatorForm {
    NewestPart,
    ModifiedMean,
    LinearAdmitted,
}

impl Form for EstimatorForm {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.one_of(&[
            ("newest_part", Self::NewestPart),
            ("modified_mean", Self::ModifiedMean),
            ("linear_admitted", Self::LinearAdmitted),
        ])
    }
}

/// How full the bucket of a new key is, or where windows start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    Full,
    Empty,
    Aligned,
    First,
}

impl Start {
    const NAMES: [(&str, Self); 4] = [
        ("full", Self::Full),
        ("empty", Self::Empty),
        ("aligned", Self::Aligned),
        ("first", Self::First),
    ];

    /// The error about a start that the algorithm does not have.
    pub(crate) fn unfit(self, expected: &str, algorithm: &str) -> String {
        let found = Self::NAMES.into_iter().find(|(_, start)| *start == self);
        let found = found.map_or("", |(name, _)| name);
        format!("`start`: expected {expected} for `{algorithm}`, found \"{found}\"")
    }
}

impl Form for Start {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.one_of(&Self::NAMES)
    }
}

/// Every field that any algorithm has. Which fields belong together is checked after reading, so that an
/// error about one field names that field's place and not the place of the whole table.
macro_rules! limit_form {
    ($($field:ident: $form:ty,)*) => {
        form! {
            #[derive(Clone, Debug)]
            pub(crate) struct LimitForm {
                pub(super) algorithm: Option<AlgorithmName> = None,
                name: Option<Name> = None,
                depth: Option<Depth> = None,
                shadow: Option<bool> = None,
                warn_at: Option<Percent> = None,
                payer: Option<bool> = None,
                /// Only for an override: other limits in place of other numbers.
                limits: Option<Vec<LimitEntry>> = None,
                $(pub(crate) $field: Option<$form> = None,)*
            }
        }

        impl LimitForm {
            /// The fields that are set, except those that every limit may have.
            pub(super) fn given(&self) -> impl Iterator<Item = &'static str> {
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
                    shadow: other.shadow.or(self.shadow),
                    warn_at: other.warn_at.or(self.warn_at),
                    payer: other.payer.or(self.payer),
                    limits: None,
                    $($field: other.$field.clone().or_else(|| self.$field.clone()),)*
                }
            }
        }
    };
}

limit_form! {
    capacity: Bounded<1>,
    rate: RateForm,
    limit: Bounded<1>,
    period: Period,
    segments: Bounded<0>,
    start: Start,
    rates: Vec<WindowForm>,
    min_gap: Span,
    count_denied: bool,
    time_to_live: Span,
    max_leases: Bounded<1>,
    expiry: Span,
    max_owners: Bounded<1>,
    most: Bounded<1>,
    time: Span,
    max_holders: Bounded<1>,
    reserve: Percent,
    good: Percent,
    bad: Percent,
    delay: Span,
    full: Span,
    estimator: EstimatorForm,
    ramp: Bounded<1>,
    refusals: Bounded<1>,
    within: Span,
    duration: Span,
    max: Span,
    forgive_after: Span,
    timezone: String,
    zone_data: String,
    anchor: Anchor,
    week_start: String,
}

/// A limit and its form, of which an override may replace some fields.
#[derive(Clone, Debug)]
pub(crate) struct LimitEntry {
    form: LimitForm,
    pub(crate) limit: NamedLimit,
}

impl Form for LimitEntry {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.must_be_map(
            "a limit such as { algorithm = \"fixed_window\", limit = 10, period = \"1s\" }",
        )?;
        has_fields_of_its_algorithm(node)?;
        Self::new(node.read()?).map_err(Error::plain)
    }
}

/// Refuses a field that a limit of this algorithm does not have, before the form refuses one that no algorithm has: the error then
/// lists fewer fields. The form refuses an algorithm that is missing or unknown.
fn has_fields_of_its_algorithm(node: &Node<'_>) -> Result<(), Error> {
    has_fields_of(algorithm_of(node), node, COMMON)
}

/// Refuses such fields in the overrides of a policy. An override replaces fields of the only limit, unless it names another algorithm.
pub(crate) fn overrides_have_fields_of_their_algorithm(policy: &Node<'_>) -> Result<(), Error> {
    let only = match policy.field("limits").map(|limits| &limits.value) {
        Some(Value::List(limits)) if limits.len() == 1 => limits.first().and_then(algorithm_of),
        _ => None,
    };
    let overrides = policy.field("overrides").into_iter().flat_map(Node::entries);
    for (pattern, own) in overrides.filter(|(_, own)| matches!(own.value, Value::Map(_))) {
        has_fields_of(algorithm_of(own).or(only), own, &[COMMON, &["limits"]].concat())
            .map_err(|error| error.in_field(pattern).in_field("overrides"))?;
    }
    Ok(())
}

/// The fields that a limit of any algorithm may have.
const COMMON: &[&str] = &["algorithm", "name", "depth", "shadow", "warn_at", "payer"];

fn algorithm_of<'n>(limit: &'n Node<'_>) -> Option<&'n str> {
    limit.field("algorithm")?.text().ok()
}

fn has_fields_of(algorithm: Option<&str>, node: &Node<'_>, others: &[&str]) -> Result<(), Error> {
    match FIELDS.iter().find(|(name, _)| Some(*name) == algorithm) {
        Some((_, fields)) => node.has_only(&[others, *fields].concat()),
        None => Ok(()),
    }
}

impl LimitEntry {
    fn new(form: LimitForm) -> Result<Self, String> {
        let name = form.name.clone().map(String::from).unwrap_or_default();
        let depth = form.depth.unwrap_or(Depth::Whole);
        let tag = if name.is_empty() { 0 } else { fnv1a(name.bytes()) };
        let (limit, shadow) = (form.limit()?, form.shadow.unwrap_or(false));
        let warn_at = form.warn_at.map(|share| checked_warning(share, &limit)).transpose()?;
        let payer = form.payer.unwrap_or(false).then_some(0); // `payers::number` gives it its place
        let limit = NamedLimit { name, depth, limit, shadow, warn_at, payer, tag };
        Ok(Self { form, limit })
    }

    /// The limits of an override: either its own limits, or the policy's only limit with other numbers.
    pub(crate) fn overridden(
        limits: &[Self],
        mut own: LimitForm,
    ) -> Result<Vec<NamedLimit>, String> {
        match (own.limits.take(), limits) {
            (Some(limits), _) if own.given().next().is_none() && own.algorithm.is_none() => {
                Ok(limits.into_iter().map(|entry| entry.limit).collect())
            }
            (Some(_), _) => Err("expected either `limits` or other fields, found both".into()),
            (None, [only]) => {
                let mut form = only.form.but(&own);
                if own.timezone.is_some() {
                    form.zone_data = own.zone_data; // those of another zone would be wrong
                }
                Ok([Self::new(form)?.limit].into())
            }
            (None, _) => Err(
                "expected `limits` with all limits of these keys, because the policy has several; \
                     found fields of one limit"
                    .into(),
            ),
        }
    }
}

fn checked_warning(Percent(share): Percent, limit: &Limit) -> Result<Share, String> {
    if share == Share::NONE {
        return Err("`warn_at`: expected more than 0%, found 0%".into());
    }
    match limit.kind() {
        Kind::Rate | Kind::Lease => Ok(share),
        Kind::Shed | Kind::Budget => Err(format!(
            "`warn_at`: expected a limit on units over time or on places, found `{}`",
            limit.algorithm()
        )),
    }
}
