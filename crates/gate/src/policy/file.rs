//! The shape of the policy file. A file that deserializes is valid.

mod build;

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::{I64Deserializer, MapAccessDeserializer, U64Deserializer};
use serde::de::{DeserializeOwned, Error, MapAccess, Visitor};

use super::limit::{LimitEntry, LimitForm};
use super::nodes::LocalForm;
use super::persist::PersistAheadForm;
use super::units::{Span, Whole};
use super::{Cost, OnChange, OnError, Placement, Policies, Policy, PolicyError};
use crate::gateway::{ApiPath, Gateway, RouteForm};
use crate::key::Pattern;
use crate::object::{Object, object};
use crate::quote::Quoted;
use crate::source::token::Jwt;
use crate::source::{JoinedSources, KeySource, Network, is_token};
use crate::tree;

const MAX_NAME_BYTES: usize = 64;
const MAX_SHARDS: u32 = 65_536;
const MAX_CLASSES: usize = 16;

pub(super) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, PolicyError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text); // some editors begin UTF-8 with it
    let (tree, map) = match text.trim_start().starts_with('{') {
        true => (tree::json(text), "an object"),
        false => (tree::toml(text), "a table"),
    };
    tree.and_then(|tree| tree.read()).map_err(|error| PolicyError::new(text, &error, map))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    auth: Auth,
    #[serde(deserialize_with = "at_least_one")]
    policies: BTreeMap<Name, Policy>,
    #[serde(default)]
    routes: Vec<Object<RouteForm>>,
    api_path: Option<ApiPath>,
    #[serde(default)]
    trusted_proxies: Vec<Network>,
    jwt: Option<Object<Jwt>>,
}

fn at_least_one<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<Name, Policy>, D::Error> {
    let policies: BTreeMap<Name, Policy> = no_two_alike(deserializer)?;
    if policies.is_empty() {
        return Err(D::Error::custom("expected at least one policy, found none"));
    }
    Ok(policies)
}

/// Refuses a second field of the same name. TOML does so by itself; in JSON the last field would win.
fn no_two_alike<'de, K, V, D>(deserializer: D) -> Result<BTreeMap<K, V>, D::Error>
where
    K: Deserialize<'de> + Ord + fmt::Display,
    V: Deserialize<'de>,
    D: serde::Deserializer<'de>,
{
    struct UniqueVisitor<K, V>(PhantomData<(K, V)>);

    impl<'de, K, V> Visitor<'de> for UniqueVisitor<K, V>
    where
        K: Deserialize<'de> + Ord + fmt::Display,
        V: Deserialize<'de>,
    {
        type Value = BTreeMap<K, V>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a table")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut all = BTreeMap::new();
            while let Some((name, value)) = map.next_entry::<K, V>()? {
                if all.contains_key(&name) {
                    return Err(A::Error::custom(format!(
                        "expected each name once, found {name} twice"
                    )));
                }
                all.insert(name, value);
            }
            Ok(all)
        }
    }

    deserializer.deserialize_map(UniqueVisitor(PhantomData))
}

impl TryFrom<File> for Policies {
    type Error = PolicyError;

    fn try_from(file: File) -> Result<Self, PolicyError> {
        let File { auth, policies, routes, api_path, trusted_proxies, jwt } = file;
        let policies = policies.into_iter().map(|(name, policy)| Arc::new(policy.named(name)));
        let mut all = Self {
            policies: policies.collect(),
            needs_token: matches!(auth, Auth::Token),
            gateway: Gateway::default(),
        };
        if api_path.is_some() && routes.is_empty() {
            let message = "expected `routes` beside it, found none";
            return Err(PolicyError::at_path("api_path".to_owned(), message.to_owned()));
        }
        let routes = routes.into_iter().enumerate().map(|(place, Object(form))| {
            form.route(|name| all.get(name))
                .map_err(|message| PolicyError::at_path(format!("routes[{place}]"), message))
        });
        let routes = routes.collect::<Result<_, _>>()?;
        let jwt = jwt.map(|Object(jwt)| jwt);
        if jwt.is_none()
            && let Some(policy) = all.policies.iter().find(|policy| policy.reads_token())
        {
            let path = format!("policies.{}.key", policy.name());
            let message =
                "expected a table `jwt` in the file, which says how tokens are read; found none";
            return Err(PolicyError::at_path(path, message.to_owned()));
        }
        all.gateway = Gateway { routes, api_path, trusted_proxies, jwt };
        Ok(all)
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Auth {
    #[default]
    Token,
    None,
}

/// The name of a policy or a limit. Headers, URLs and the names of stored states contain it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Name(String);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f) // in quotes
    }
}

impl TryFrom<String> for Name {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        if (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(allowed) {
            return Ok(Self(name));
        }
        Err(format!(
            "expected a name of 1 to {MAX_NAME_BYTES} letters, digits, `_`, `-` and `.`; found {}",
            Quoted(&name)
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
    limits: Vec<LimitEntry>,
    #[serde(default, deserialize_with = "no_two_alike")]
    overrides: BTreeMap<Pattern, Object<LimitForm>>,
    #[serde(default)]
    deny: Vec<Pattern>,
    #[serde(default)]
    allow: Vec<Pattern>,
    #[serde(default)]
    shadow: bool,
    #[serde(default)]
    ipv6_prefix: Ipv6Prefix,
    #[serde(default)]
    classes: Classes,
    #[serde(default = "by_ip")]
    key: Vec<JoinedSources>,
    #[serde(default)]
    cost: Cost,
    #[serde(default)]
    on_error: OnError,
    #[serde(default)]
    on_change: OnChange,
    #[serde(default)]
    placement: Placement,
    remember: Option<Span>,
    local: Option<Object<LocalForm>>,
    persist_ahead: Option<Object<PersistAheadForm>>,
    #[serde(default)]
    reports: bool,
    #[serde(default)]
    share_calls: bool,
}

/// The number of leading bits of an IPv6 address that a limit counts by. Providers usually give each
/// customer a network with 64.
#[derive(Deserialize)]
#[serde(from = "Whole<1, 128>")]
struct Ipv6Prefix(u8);

impl Default for Ipv6Prefix {
    fn default() -> Self {
        Self(64)
    }
}

impl From<Whole<1, 128>> for Ipv6Prefix {
    fn from(Whole(bits): Whole<1, 128>) -> Self {
        Self(u8::try_from(bits).unwrap_or(128)) // never: it is at most 128
    }
}

/// The names of the classes, from the least to the most important, which is never shed.
#[derive(Clone, Deserialize)]
#[serde(try_from = "Vec<Name>")]
struct Classes(Vec<String>);

impl Default for Classes {
    fn default() -> Self {
        Self(["default".to_owned(), "critical".to_owned()].into())
    }
}

impl TryFrom<Vec<Name>> for Classes {
    type Error = String;

    fn try_from(names: Vec<Name>) -> Result<Self, String> {
        if !(2..=MAX_CLASSES).contains(&names.len()) {
            return Err(format!("expected 2 to {MAX_CLASSES} classes, found {}", names.len()));
        }
        let mut sorted: Vec<&Name> = names.iter().collect();
        sorted.sort_unstable();
        match sorted.array_windows().find(|[one, next]| one == next) {
            Some([name, _]) => Err(format!("expected each class once, found {name} twice")),
            None => Ok(Self(names.into_iter().map(String::from).collect())),
        }
    }
}

fn by_ip() -> Vec<JoinedSources> {
    [KeySource::Ip.into()].into()
}

impl<'de> Deserialize<'de> for Policy {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        object(deserializer, "a table with `limits`", Self::new)
    }
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
        if !is_token(&form.header) {
            let message =
                format!("`header`: expected the name of a header, found {}", Quoted(&form.header));
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
        let shards = text.strip_prefix("shard:").filter(|shards| !shards.starts_with(['+', '0']));
        let shards = shards.and_then(|shards| shards.parse().ok());
        match shards {
            Some(shards) if (1..=MAX_SHARDS).contains(&shards) => Ok(Self::Shard(shards)),
            _ => Err(format!(
                "expected \"key\" or \"shard:N\" with N from 1 to {MAX_SHARDS}, found {}",
                Quoted(&text)
            )),
        }
    }
}
