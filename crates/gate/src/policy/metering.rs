//! Costs that only the answer tells: what a request reserves, where its answer has the true cost, and which answers count.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::{fmt, iter};

use tidegate_core::MAX_QUANTITY;
use tidegate_form::{Bounded, Error, Form, Node, Quoted, Value, form};

use super::source::is_token;

/// The most terms of a sum.
const MAX_TERMS: usize = 8;

/// The most paths of a term.
const MAX_PATHS: usize = 4;

/// The longest path of a field, in bytes.
const MAX_PATH_BYTES: usize = 128;

/// How the cost of a request is known: an estimate before, and the true cost by its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metering {
    estimate: Option<Arc<Sum>>,
    actual: Option<Arc<Sum>>,
    count_if: Option<CountIf>,
    if_unknown: IfUnknown,
}

/// Units that are added up. The sum is at most 2^53 − 1: what is above counts as that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sum(Vec<Term>);

/// Units of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    source: TermSource,
    /// The largest number at these paths multiplies the units.
    times: Vec<FieldPath>,
    weight: u64,
    otherwise: Option<u64>,
}

/// Where the number of a term is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TermSource {
    /// It is always this number.
    Fixed(u64),
    /// A header, by its name in lower case.
    Header(String),
    /// A field of a JSON body, by these paths. The largest whole number at one of them counts.
    Field(Vec<FieldPath>),
    /// A unit for each so many bytes of the body.
    Bytes(u64),
}

/// The names of a field and of the objects around it, the outermost first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath(String);

/// What is known of a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summed {
    /// The sum of what is known.
    pub units: u64,
    /// Whether every term is known.
    pub is_whole: bool,
}

/// What is committed if the answer does not tell the cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IfUnknown {
    /// The estimate, or what was seen if that is more.
    #[default]
    Estimate,
    /// What was seen.
    Seen,
}

/// The answers that count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CountIf {
    /// Those with a status in one of these ranges, of which both ends are included.
    Status(Vec<(u16, u16)>),
    /// Those with this header, by its name in lower case.
    Header {
        /// The name in lower case.
        name: String,
        /// The value that it must have; `None` for any.
        value: Option<String>,
    },
}

impl Metering {
    /// The units to reserve; `None` for the cost of the request.
    #[must_use]
    pub const fn estimate(&self) -> Option<&Arc<Sum>> {
        self.estimate.as_ref()
    }

    /// The true cost; `None` for the estimate.
    #[must_use]
    pub const fn actual(&self) -> Option<&Arc<Sum>> {
        self.actual.as_ref()
    }

    /// The answers that count; `None` for all.
    #[must_use]
    pub const fn count_if(&self) -> Option<&CountIf> {
        self.count_if.as_ref()
    }

    /// What is committed if the answer does not tell the cost.
    #[must_use]
    pub const fn if_unknown(&self) -> IfUnknown {
        self.if_unknown
    }
}

impl Sum {
    /// The terms.
    #[must_use]
    pub fn terms(&self) -> &[Term] {
        &self.0
    }

    /// Adds up the terms, of which these numbers were found, and after them the numbers that multiply the terms.
    #[must_use]
    pub fn of(&self, found: &[Option<u64>]) -> Summed {
        let mut summed = Summed { units: 0, is_whole: true };
        let mut found = found.iter().copied().chain(iter::repeat(None));
        let numbers: Vec<Option<u64>> = found.by_ref().take(self.0.len()).collect();
        for ((term, number), times) in self.0.iter().zip(numbers).zip(found) {
            let units =
                term.units(number).map(|units| units.saturating_mul(times.unwrap_or(1).max(1)));
            summed.is_whole &= units.is_some();
            let units = summed.units.saturating_add(units.unwrap_or(0));
            summed.units = units.min(MAX_QUANTITY);
        }
        summed
    }
}

impl Term {
    /// Where the number is.
    #[must_use]
    pub const fn source(&self) -> &TermSource {
        &self.source
    }

    /// The paths of the field; none if the number is elsewhere.
    #[must_use]
    pub fn fields(&self) -> &[FieldPath] {
        match &self.source {
            TermSource::Field(paths) => paths,
            _ => &[],
        }
    }

    /// The paths of the fields that multiply the units.
    #[must_use]
    pub fn times(&self) -> &[FieldPath] {
        &self.times
    }

    /// The units that a number stands for; `None` if it is not known.
    fn units(&self, found: Option<u64>) -> Option<u64> {
        let number = match self.source {
            TermSource::Fixed(number) => Some(number),
            TermSource::Bytes(each) => found.map(|bytes| bytes.div_ceil(each)), // a cost rounds up
            _ => found,
        };
        number.or(self.otherwise).map(|number| number.saturating_mul(self.weight))
    }
}

impl FieldPath {
    /// The name at this depth, from 0; `None` below the field.
    #[must_use]
    pub fn name(&self, depth: usize) -> Option<&str> {
        self.0.split('.').nth(depth)
    }
}

impl CountIf {
    /// Whether an answer counts.
    #[must_use]
    pub fn includes(&self, status: u16, header: &dyn Fn(&str) -> Option<String>) -> bool {
        match self {
            Self::Status(ranges) => {
                ranges.iter().any(|(first, last)| (*first..=*last).contains(&status))
            }
            Self::Header { name, value } => {
                header(name).is_some_and(|found| value.as_ref().is_none_or(|value| *value == found))
            }
        }
    }
}

form! {
    /// What a route, or middleware, says of costs that only the answer tells.
    pub(super) struct MeteringForm {
        pub(super) estimate: Option<Sum> = None,
        pub(super) actual: Option<Sum> = None,
        pub(super) count_if: Option<CountIf> = None,
        pub(super) if_unknown: Option<IfUnknown> = None,
    }
}

impl MeteringForm {
    /// # Errors
    /// The message names the field, and says what was expected and found.
    pub(super) fn metering(self) -> Result<Option<Metering>, String> {
        let Self { estimate, actual, count_if, if_unknown } = self;
        let alone = match (&estimate, if_unknown) {
            (Some(_), _) if actual.is_none() && count_if.is_none() => {
                Some(("estimate", "`actual` or `count_if`"))
            }
            (_, Some(_)) if actual.is_none() => Some(("if_unknown", "`actual`")),
            _ => None,
        };
        if let Some((field, beside)) = alone {
            return Err(format!("`{field}`: expected {beside} beside it, found none"));
        }
        let is_open = |term: &Term| {
            let is_known = matches!(term.source, TermSource::Fixed(_) | TermSource::Bytes(_));
            term.otherwise.is_none() && !is_known
        };
        if estimate.iter().flat_map(Sum::terms).any(is_open) {
            let why = "which counts if the request does not have the number";
            return Err(format!("`estimate`: expected `otherwise`, {why}; found none"));
        }
        if actual.iter().flat_map(Sum::terms).any(|term| !term.times.is_empty()) {
            return Err("`actual`: expected terms without `times`, which is for `estimate`".into());
        }
        let if_unknown = if_unknown.unwrap_or_default();
        let meters = actual.is_some() || count_if.is_some();
        let (estimate, actual) = (estimate.map(Arc::new), actual.map(Arc::new));
        Ok(meters.then_some(Metering { estimate, actual, count_if, if_unknown }))
    }
}

impl Form for Sum {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        let terms: Vec<Term> = match node.value {
            Value::List(_) => node.read()?,
            _ => [Term::read(node)?].into(),
        };
        few("terms", terms, MAX_TERMS).map(Self)
    }
}

form! {
    struct TermForm {
        header: Option<String> = None,
        field: Option<Paths> = None,
        bytes: Option<Bounded<1>> = None,
        times: Option<Paths> = None,
        weight: Bounded<1> = Bounded::clamped(1),
        otherwise: Option<Bounded<0>> = None,
    }
}

impl Form for Term {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        if !matches!(node.value, Value::Map(_)) {
            let number: Bounded<1> = node
                .read()
                .map_err(|_| node.refused("a whole number above 0, or a table with `field`"))?;
            let source = TermSource::Fixed(number.get());
            return Ok(Self { source, times: Vec::new(), weight: 1, otherwise: None });
        }
        let TermForm { header, field, bytes, times, weight, otherwise } = node.read()?;
        let source = match (header, field, bytes) {
            (Some(header), None, None) => TermSource::Header(header_name(header)?),
            (None, Some(Paths(paths)), None) => TermSource::Field(paths),
            (None, None, Some(each)) if otherwise.is_none() => TermSource::Bytes(each.get()),
            (None, None, Some(_)) => {
                return Err(Error::plain(
                    "`otherwise`: expected it without `bytes`, which are always known".into(),
                ));
            }
            _ => {
                let message =
                    "expected one of `header`, `field` and `bytes`, found none or several";
                return Err(Error::plain(message.into()));
            }
        };
        let times = times.map_or_else(Vec::new, |Paths(paths)| paths);
        Ok(Self { source, times, weight: weight.get(), otherwise: otherwise.map(Bounded::get) })
    }
}

struct Paths(Vec<FieldPath>);

impl Form for Paths {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        let paths = match node.value {
            Value::List(_) => node.read()?,
            _ => [FieldPath::read(node)?].into(),
        };
        few("paths", paths, MAX_PATHS).map(Self)
    }
}

impl Form for FieldPath {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.parse(|text| {
            let is_path = text.len() <= MAX_PATH_BYTES && text.split('.').all(|name| !name.is_empty());
            is_path.then(|| Self(text.into())).ok_or_else(|| {
                format!(
                    "expected the path of a field such as \"usage.total_tokens\" in at most {MAX_PATH_BYTES} bytes, \
                     found {}",
                    Quoted(text)
                )
            })
        })
    }
}

impl Form for IfUnknown {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.one_of(&[("estimate", Self::Estimate), ("seen", Self::Seen)])
    }
}

form! {
    struct CountIfForm {
        status: Option<Statuses> = None,
        header: Option<String> = None,
        value: Option<String> = None,
    }
}

impl Form for CountIf {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        match node.read()? {
            CountIfForm { status: Some(Statuses(ranges)), header: None, value: None } => {
                Ok(Self::Status(ranges))
            }
            CountIfForm { status: None, header: Some(name), value } => {
                Ok(Self::Header { name: header_name(name)?, value })
            }
            _ => {
                let message =
                    "expected `status`, or `header` with or without `value`; found something else";
                Err(Error::plain(message.into()))
            }
        }
    }
}

/// Ranges of statuses.
struct Statuses(Vec<(u16, u16)>);

impl Form for Statuses {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        let one = |node: &Node<'_>| {
            let range = match &node.value {
                Value::Natural(status) => {
                    u16::try_from(*status).ok().map(|status| (status, status))
                }
                Value::Text(text) => range(text),
                _ => None,
            };
            let is_range =
                |&(first, last): &(u16, u16)| 100 <= first && first <= last && last <= 599;
            range.filter(is_range).ok_or_else(|| {
                node.refused("a status such as 401, or a range of them such as \"500-599\"")
            })
        };
        let ranges = match &node.value {
            Value::List(nodes) => nodes.iter().map(one).collect::<Result<_, _>>()?,
            _ => [one(node)?].into(),
        };
        few("ranges", ranges, MAX_TERMS).map(Self)
    }
}

fn range(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-')?;
    let status = |text: &str| text.parse().ok().filter(|_| text.len() == 3);
    Some((status(first)?, status(last)?))
}

fn few<T>(what: &str, all: Vec<T>, most: usize) -> Result<Vec<T>, Error> {
    match all.len() {
        found if (1..=most).contains(&found) => Ok(all),
        found => Err(Error::plain(format!("expected 1 to {most} {what}, found {found}"))),
    }
}

fn header_name(name: String) -> Result<String, Error> {
    if is_token(&name) {
        return Ok(name.to_ascii_lowercase());
    }
    let found = Quoted(&name);
    Err(Error::plain(format!("`header`: expected the name of a header, found {found}")))
}

/// Says what is committed.
impl fmt::Display for Metering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.actual {
            Some(_) => "at the cost that its answer tells",
            None => "at its cost",
        })?;
        match self.count_if {
            Some(_) => f.write_str(" if the answer counts"),
            None => Ok(()),
        }
    }
}
