//! The shape of the policy file. A file that can be read is valid.

mod build;

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;

use tidegate_core::never;
use tidegate_form::{Error, Form, Node, Quoted, Value, form, json, repeated, toml};

use super::error::PolicyError;
use super::jwt::Jwt;
use super::metering::{Metering, MeteringForm};
use super::network::Network;
use super::nodes::LocalForm;
use super::persist::PersistAheadForm;
use super::policies::Policies;
use super::policy::{Cost, OnError, Placement, Policy};
use super::reservations::ReservationsForm;
use super::routes::{ApiPath, Gateway, RouteForm};
use super::source::{JoinedSources, KeySource, is_token};
use crate::decide::OnChange;
use crate::key::Pattern;
use crate::limit::form::{LimitEntry, LimitForm, overrides_have_fields_of_their_algorithm};
use crate::name::Name;
use crate::units::Span;
use tidegate_core::Micros;
use tidegate_form::Bounded;

const MAX_SHARDS: u32 = 65_536;
const MAX_CLASSES: usize = 16;

/// When a refused caller may try again for a lease, at the latest: a lease usually ends long before it expires.
pub(super) const LEASE_RETRY_AFTER: Micros = Micros(5_000_000);

pub(super) fn parse<T: Form>(text: &str) -> Result<T, PolicyError> {
    parse_edited(text, &mut |_| ())
}

/// Reads a file after `edit` has changed its tree.
pub(super) fn parse_edited<'t, T: Form>(
    text: &'t str,
    edit: &mut dyn FnMut(&mut Node<'t>), // the code of a form exists once
) -> Result<T, PolicyError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text); // some editors begin UTF-8 with it
    let (tree, map) = match text.trim_start().starts_with('{') {
        true => (json(text), "an object"),
        false => (toml(text), "a table"),
    };
    let read = tree.and_then(|mut tree| {
        edit(&mut tree);
        tree.read()
    });
    read.map_err(|error| PolicyError::new(text, &error, map))
}

impl Policies {
    /// Reads a policy file: TOML, or JSON of the same shape if it begins with `{`.
    ///
    /// # Errors
    /// Fails with [`PolicyError`], which names the place in the file.
    ///
    /// ```
    /// use tidegate_gate::Policies;
    /// let policies = Policies::parse(r#"
    ///     [policies.api]
    ///     limits = [{ algorithm = "token_bucket", capacity = 500, rate = "100/s" }]
    /// "#).unwrap();
    /// assert_eq!(policies.get("api").unwrap().limits().capacity(), 500);
    ///
    /// let error = Policies::parse("[policies.api]\nlimits = []").unwrap_err();
    /// assert_eq!((error.line, error.path.as_str()), (1, "policies.api"));
    /// ```
    #[inline(never)] // a caller that is built for speed would build it for speed too, which takes more bytes
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let file: File = parse(text)?;
        file.try_into()
    }
}

impl Policy {
    /// Reads a single policy, which is the table under `policies.NAME` of a file.
    ///
    /// # Errors
    /// Fails with [`PolicyError`], which names the place in the text.
    #[inline(never)] // as above
    pub fn parse(name: &str, text: &str) -> Result<Self, PolicyError> {
        let policy: Self = parse(text)?;
        let name = Name::parse(name).map_err(PolicyError::at_start)?;
        Ok(policy.named(name))
    }
}

impl Metering {
    /// Reads what middleware says of costs that only the answer tells, in JSON; `None` if it says nothing.
    ///
    /// # Errors
    /// Fails with [`PolicyError`], which names the place in the text.
    #[inline(never)] // as above
    pub fn parse(json: &str) -> Result<Option<Self>, PolicyError> {
        let form: MeteringForm = parse(json)?;
        form.metering().map_err(PolicyError::at_start)
    }
}

form! {
    pub(super) struct File {
        auth: Auth = Auth::Token,
        policies: Named,
        routes: Vec<RouteForm> = Vec::new(),
        api_path: Option<ApiPath> = None,
        health_path: Option<ApiPath> = None,
        trusted_proxies: Vec<Network> = Vec::new(),
        jwt: Option<Jwt> = None,
    }
}

/// All policies, at least one, sorted by name.
struct Named(Vec<(Name, Policy)>);

impl Form for Named {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        let policies = node.sorted(Name::parse)?;
        if policies.is_empty() {
            return Err(Error::plain("expected at least one policy, found none".to_owned()));
        }
        Ok(Self(policies))
    }
}

impl TryFrom<File> for Policies {
    type Error = PolicyError;

    #[inline(never)] // as above
    fn try_from(file: File) -> Result<Self, PolicyError> {
        let File {
            auth, policies: Named(policies), routes, api_path, trusted_proxies, jwt, ..
        } = file;
        let health_path = file.health_path;
        let policies = policies.into_iter().map(|(name, policy)| Arc::new(policy.named(name)));
        let mut all = Self {
            policies: policies.collect(),
            needs_token: matches!(auth, Auth::Token),
            gateway: Gateway::default(),
        };
        let paths = [("api_path", &api_path), ("health_path", &health_path)];
        if let Some((path, _)) = paths.into_iter().find(|(_, path)| path.is_some())
            && routes.is_empty()
        {
            let message = "expected `routes` beside it, found none";
            return Err(PolicyError::at_path(path.to_owned(), message.to_owned()));
        }
        let routes = routes.into_iter().enumerate().map(|(place, form)| {
            form.route(|name| all.get(name))
                .map_err(|message| PolicyError::at_path(format!("routes[{place}]"), message))
        });
        let routes = routes.collect::<Result<_, _>>()?;
        if jwt.is_none()
            && let Some(policy) = all.policies.iter().find(|policy| policy.reads_token())
        {
            let path = format!("policies.{}.key", policy.name());
            let message =
                "expected a table `jwt` in the file, which says how tokens are read; found none";
            return Err(PolicyError::at_path(path, message.to_owned()));
        }
        all.gateway = Gateway { routes, api_path, health_path, trusted_proxies, jwt };
        Ok(all)
    }
}

#[derive(Clone, Copy)]
enum Auth {
    Token,
    None,
}

impl Form for Auth {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.one_of(&[("token", Self::Token), ("none", Self::None)])
    }
}

form! {
    pub(super) struct PolicyForm {
        description: Option<String> = None,
        limits: Vec<LimitEntry>,
        overrides: Overrides = Overrides(Vec::new()),
        deny: Vec<Pattern> = Vec::new(),
        allow: Vec<Pattern> = Vec::new(),
        shadow: bool = false,
        ipv6_prefix: Ipv6Prefix = Ipv6Prefix::default(),
        classes: Classes = Classes::default(),
        key: Vec<JoinedSources> = by_ip(),
        cost: Cost = Cost::default(),
        on_error: OnError = OnError::default(),
        nodes: Option<Bounded<1>> = None,
        on_change: OnChange = OnChange::default(),
        lease_retry_after: Span = Span(LEASE_RETRY_AFTER),
        placement: Placement = Placement::default(),
        remember: Option<Span> = None,
        local: Option<LocalForm> = None,
        persist_ahead: Option<PersistAheadForm> = None,
        reservations: Option<ReservationsForm> = None,
        idempotency: Option<Span> = None,
        reports: bool = false,
        share_calls: Option<bool> = None,
    }
}

/// The overrides, the most specific pattern first.
struct Overrides(Vec<(Ranked, LimitForm)>);

impl Form for Overrides {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.sorted(Ranked::parse).map(Self)
    }
}

/// A pattern that comes before all less specific ones.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Ranked {
    rank: Reverse<(bool, usize)>,
    pattern: Pattern,
}

impl Ranked {
    fn parse(text: &str) -> Result<Self, String> {
        let pattern = Pattern::parse(text)?;
        Ok(Self { rank: Reverse(pattern.specificity()), pattern })
    }
}

impl fmt::Display for Ranked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pattern.fmt(f)
    }
}

/// The number of leading bits of an IPv6 address that a limit counts by. Providers usually give each
/// customer a network with 64.
struct Ipv6Prefix(u8);

impl Default for Ipv6Prefix {
    fn default() -> Self {
        Self(64)
    }
}

impl Form for Ipv6Prefix {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        let bits = node.whole(1, 128)?;
        Ok(Self(u8::try_from(bits).unwrap_or_else(|_| never(1)))) // at most 128
    }
}

/// The names of the classes, from the least to the most important, which is never shed.
struct Classes(Vec<String>);

impl Default for Classes {
    fn default() -> Self {
        Self(["default".to_owned(), "critical".to_owned()].into())
    }
}

impl Form for Classes {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        let names: Vec<Name> = node.read()?;
        Self::new(names).map_err(Error::plain)
    }
}

impl Classes {
    fn new(names: Vec<Name>) -> Result<Self, String> {
        if !(2..=MAX_CLASSES).contains(&names.len()) {
            return Err(format!("expected 2 to {MAX_CLASSES} classes, found {}", names.len()));
        }
        match repeated(&names) {
            Some(name) => Err(format!("expected each class once, found {name} twice")),
            None => Ok(Self(names.into_iter().map(String::from).collect())),
        }
    }
}

fn by_ip() -> Vec<JoinedSources> {
    [KeySource::Ip.into()].into()
}

impl Form for Policy {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.must_be_map("a table with `limits`")?;
        overrides_have_fields_of_their_algorithm(node)?;
        Self::new(node.read()?).map_err(Error::plain)
    }
}

impl Default for Cost {
    fn default() -> Self {
        Self::Fixed(1)
    }
}

impl Form for Cost {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        match node.value {
            Value::Natural(_) | Value::Negative(_) => {
                node.read().map(|cost: Bounded<1>| Self::Fixed(cost.get()))
            }
            Value::Map(_) => node.read().and_then(Self::of_header),
            _ => {
                Err(node.refused("a whole number above 0, or { header = \"x-cost\", default = 1 }"))
            }
        }
    }
}

form! {
    struct HeaderForm {
        header: String,
        default: Option<Bounded<1>> = None,
    }
}

impl Cost {
    fn of_header(HeaderForm { header, default }: HeaderForm) -> Result<Self, Error> {
        if !is_token(&header) {
            let found = Quoted(&header);
            let message = format!("`header`: expected the name of a header, found {found}");
            return Err(Error::plain(message));
        }
        let default = default.map_or(1, Bounded::get);
        Ok(Self::Header { name: header.to_ascii_lowercase(), default })
    }
}

impl Form for OnError {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.one_of(&[("open", Self::Open), ("closed", Self::Closed), ("local", Self::Local)])
    }
}

impl Form for OnChange {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.one_of(&[
            ("reset", Self::Reset),
            ("keep", Self::Keep),
            ("proportional", Self::Proportional),
        ])
    }
}

impl Form for Placement {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.parse(Self::parse)
    }
}

impl Placement {
    fn parse(text: &str) -> Result<Self, String> {
        if text == "key" {
            return Ok(Self::Key);
        }
        let shards = text.strip_prefix("shard:").filter(|shards| !shards.starts_with(['+', '0']));
        let shards = shards.and_then(|shards| shards.parse().ok());
        match shards {
            Some(shards) if (1..=MAX_SHARDS).contains(&shards) => Ok(Self::Shard(shards)),
            _ => Err(format!(
                "expected \"key\" or \"shard:N\" with N from 1 to {MAX_SHARDS}, found {}",
                Quoted(text)
            )),
        }
    }
}
