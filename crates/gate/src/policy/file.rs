//! The shape of the policy file. What deserializes is valid; nothing else is kept.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use serde::Deserialize;
use serde::de::value::{I64Deserializer, MapAccessDeserializer, U64Deserializer};
use serde::de::{DeserializeOwned, Error, MapAccess, Visitor};
use tidegate_core::bucket;
use tidegate_core::window::{fixed, sliding};

use super::units::{RateForm, Span, Whole};
use super::{Cost, NamedLimit, OnError, Placement, Policies, Policy, PolicyError};
use crate::fnv::fnv1a;
use crate::key::{KeySource, is_header_name};
use crate::limit::Limit;

/// More limits on one request than anyone has asked for; each decision costs time for each.
const MAX_LIMITS: usize = 16;
const MAX_NAME_BYTES: usize = 64;
const MAX_SHARDS: u32 = 65_536;

pub(super) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, PolicyError> {
    if text.trim_start().starts_with('{') {
        let mut json = serde_json::Deserializer::from_str(text);
        let parsed = serde_path_to_error::deserialize(&mut json)
            .map_err(|error| PolicyError::from_json(path(error.path()), error.inner()))?;
        json.end().map_err(|error| PolicyError::from_json(String::new(), &error))?;
        return Ok(parsed);
    }
    let toml = toml::Deserializer::parse(text)
        .map_err(|error| PolicyError::from_toml(text, String::new(), &error))?;
    serde_path_to_error::deserialize(toml)
        .map_err(|error| PolicyError::from_toml(text, path(error.path()), error.inner()))
}

fn path(path: &serde_path_to_error::Path) -> String {
    if path.iter().next().is_none() { String::new() } else { path.to_string() }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    auth: Auth,
    #[serde(deserialize_with = "at_least_one")]
    policies: BTreeMap<Name, Policy>,
}

fn at_least_one<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<Name, Policy>, D::Error> {
    let policies = deserializer.deserialize_map(PoliciesVisitor)?;
    if policies.is_empty() {
        return Err(D::Error::custom("found none, allowed is at least one"));
    }
    Ok(policies)
}

/// TOML refuses a second policy of a name by itself; JSON would let the last one win.
struct PoliciesVisitor;

impl<'de> Visitor<'de> for PoliciesVisitor {
    type Value = BTreeMap<Name, Policy>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("policies by their names")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut policies = BTreeMap::new();
        while let Some((name, policy)) = map.next_entry::<Name, Policy>()? {
            if policies.contains_key(&name) {
                return Err(A::Error::custom(format!("found a second policy {:?}", name.0)));
            }
            policies.insert(name, policy);
        }
        Ok(policies)
    }
}

impl From<File> for Policies {
    fn from(file: File) -> Self {
        Self::from_named(file.policies, matches!(file.auth, Auth::Token))
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Auth {
    #[default]
    Token,
    None,
}

/// The name of a policy or a limit: it stands in headers, URLs and the names of stored states.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Name(String);

impl TryFrom<String> for Name {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        if (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(allowed) {
            return Ok(Self(name));
        }
        Err(format!(
            "found the name {name:?}, allowed are 1 to {MAX_NAME_BYTES} letters, digits, `_`, `-` and `.`"
        ))
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyForm {
    description: Option<String>,
    limits: Vec<NamedLimit>,
    #[serde(default = "by_ip")]
    key: Vec<KeySource>,
    #[serde(default)]
    cost: Cost,
    #[serde(default)]
    on_error: OnError,
    #[serde(default)]
    placement: Placement,
}

impl PolicyForm {
    pub(super) fn of_limits(limits: Vec<Limit>) -> Self {
        let limits =
            limits.into_iter().map(|limit| NamedLimit { name: String::new(), limit }).collect();
        Self {
            description: None,
            limits,
            key: by_ip(),
            cost: Cost::default(),
            on_error: OnError::default(),
            placement: Placement::default(),
        }
    }
}

fn by_ip() -> Vec<KeySource> {
    [KeySource::Ip].into()
}

impl TryFrom<PolicyForm> for Policy {
    type Error = String;

    fn try_from(form: PolicyForm) -> Result<Self, String> {
        let mut limits = form.limits;
        if limits.is_empty() || limits.len() > MAX_LIMITS {
            return Err(format!("`limits`: found {}, allowed are 1 to {MAX_LIMITS}", limits.len()));
        }
        if form.key.is_empty() {
            return Err(
                "`key`: found none, allowed is at least one of \"ip\", \"header:NAME\"".to_owned()
            );
        }
        if limits.len() > 1 {
            name_the_unnamed(&mut limits)?;
        }
        let most = limits.iter().map(|limit| limit.limit.capacity()).min().unwrap_or(0);
        let (Cost::Fixed(cost) | Cost::Header { default: cost, .. }) = form.cost;
        if cost > most {
            return Err(format!(
                "`cost`: found {cost}, but these limits never grant more than {most} at once"
            ));
        }
        Ok(Self {
            name: String::new(), // the file's key, given by `named`
            description: form.description,
            words: limits
                .iter()
                .fold(0, |sum: usize, limit| sum.saturating_add(limit.limit.words())),
            period: limits.iter().map(|limit| limit.limit.period()).max().unwrap_or_default(),
            fingerprint: fingerprint(&limits),
            limits,
            key: form.key,
            cost: form.cost,
            on_error: form.on_error,
            placement: form.placement,
        })
    }
}

/// A limit without a name is called by its place, from 1: `limit-1`.
fn name_the_unnamed(limits: &mut [NamedLimit]) -> Result<(), String> {
    for (place, limit) in (1_usize..).zip(limits.iter_mut()) {
        if limit.name.is_empty() {
            limit.name = format!("limit-{place}");
        }
    }
    let mut names: Vec<&str> = limits.iter().map(|limit| limit.name.as_str()).collect();
    names.sort_unstable();
    match names.array_windows().find(|[one, next]| one == next) {
        Some([name, _]) => Err(format!("`limits`: two of them are named {name:?}")),
        None => Ok(()),
    }
}

fn fingerprint(limits: &[NamedLimit]) -> u64 {
    let parameters = limits.iter().flat_map(|limit| limit.limit.parameters());
    fnv1a(parameters.flat_map(u64::to_le_bytes))
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Algorithm {
    TokenBucket,
    FixedWindow,
    SlidingWindow,
}

/// Every field that any algorithm has; which of them belong together is checked afterwards, so
/// that an error names the field's own place and not that of the whole table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitForm {
    algorithm: Algorithm,
    name: Option<Name>,
    capacity: Option<Whole<1>>,
    rate: Option<RateForm>,
    limit: Option<Whole<1>>,
    period: Option<Span>,
    segments: Option<Whole<0>>,
}

impl<'de> Deserialize<'de> for NamedLimit {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(LimitVisitor)
    }
}

/// Checks while the table is being visited, so that an error still knows which table it was.
struct LimitVisitor;

impl<'de> Visitor<'de> for LimitVisitor {
    type Value = NamedLimit;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a limit such as { algorithm = \"fixed_window\", limit = 10, period = \"1s\" }")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<NamedLimit, A::Error> {
        let form = LimitForm::deserialize(MapAccessDeserializer::new(map))?;
        let limit = form.limit().map_err(A::Error::custom)?;
        Ok(NamedLimit { name: form.name.map(String::from).unwrap_or_default(), limit })
    }
}

impl LimitForm {
    fn limit(&self) -> Result<Limit, String> {
        let error = |error: tidegate_core::ConfigError| error.to_string();
        match self.algorithm {
            Algorithm::TokenBucket => {
                self.has_no_other("token_bucket", &["capacity", "rate"])?;
                let capacity = required("capacity", self.capacity)?.0;
                let rate = required("rate", self.rate)?.0;
                bucket::Config::new(capacity, rate).map(Limit::TokenBucket).map_err(error)
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
        }
    }

    fn has_no_other(&self, algorithm: &str, allowed: &[&str]) -> Result<(), String> {
        let given = [
            ("capacity", self.capacity.is_some()),
            ("rate", self.rate.is_some()),
            ("limit", self.limit.is_some()),
            ("period", self.period.is_some()),
            ("segments", self.segments.is_some()),
        ];
        match given.iter().find(|(field, given)| *given && !allowed.contains(field)) {
            Some((field, _)) => Err(format!(
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

impl Default for Cost {
    fn default() -> Self {
        Self::Fixed(1)
    }
}

impl<'de> Deserialize<'de> for Cost {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CostVisitor)
    }
}

struct CostVisitor;

impl<'de> Visitor<'de> for CostVisitor {
    type Value = Cost;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number above 0, or { header = \"x-cost\", default = 1 }")
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Cost, E> {
        Whole::<1>::deserialize(U64Deserializer::new(value)).map(|cost| Cost::Fixed(cost.0))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Cost, E> {
        Whole::<1>::deserialize(I64Deserializer::new(value)).map(|cost| Cost::Fixed(cost.0))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Cost, A::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct HeaderForm {
            header: String,
            default: Option<Whole<1>>,
        }
        let form = HeaderForm::deserialize(MapAccessDeserializer::new(map))?;
        if !is_header_name(&form.header) {
            let message =
                format!("`header`: found {:?}, allowed is the name of a header", form.header);
            return Err(A::Error::custom(message));
        }
        let default = form.default.map_or(1, |default| default.0);
        Ok(Cost::Header { name: form.header.to_ascii_lowercase(), default })
    }
}

impl TryFrom<String> for Placement {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text == "key" {
            return Ok(Self::Key);
        }
        let shards = text.strip_prefix("shard:").and_then(|shards| shards.parse().ok());
        match shards {
            Some(shards) if (1..=MAX_SHARDS).contains(&shards) => Ok(Self::Shard(shards)),
            _ => Err(format!(
                "found {text:?}, allowed are \"key\" and \"shard:N\" with N from 1 to {MAX_SHARDS}"
            )),
        }
    }
}
