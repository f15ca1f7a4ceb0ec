//! The routes of the policy file.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use tidegate_form::{Bounded, Error, Form, Node, Quoted, form};

use super::jwt::Jwt;
use super::metering::{CountIf, IfUnknown, Metering, MeteringForm, Sum};
use super::network::Network;
use super::origin::Origin;
use super::path::{Path, is_authority, written_path};
use super::policy::Policy;
use super::route_policies::{RoutePolicies, RoutePolicy};
use super::source::is_token;

/// The part of a policy file about requests: their routes to upstreams, and where they have their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gateway {
    pub(crate) routes: Vec<Route>,
    pub(crate) api_path: Option<ApiPath>,
    pub(crate) health_path: Option<ApiPath>,
    pub(crate) trusted_proxies: Vec<Network>,
    pub(crate) jwt: Option<Jwt>,
}

impl Gateway {
    /// The routes, in the order of the file. The first that matches a request is the request's route.
    #[must_use]
    pub fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// The path under which the gateway serves the HTTP API.
    #[must_use]
    pub fn api_path(&self) -> Option<&str> {
        self.api_path.as_ref().map(|ApiPath(path)| path.as_str())
    }

    /// The path at which the gateway says whether it is healthy, beside its routes.
    #[must_use]
    pub fn health_path(&self) -> Option<&str> {
        self.health_path.as_ref().map(|ApiPath(path)| path.as_str())
    }

    /// The path of a request as the HTTP API knows it; `None` if the request is not for the API. A gateway serves the
    /// API only under `api_path`, so that no path of the API hides a path of the upstream, and no client reaches the
    /// API by accident.
    #[must_use]
    pub fn api<'p>(&self, path: &'p str) -> Option<&'p str> {
        match &self.api_path {
            _ if self.routes.is_empty() => Some(path),
            _ if self.health_path() == Some(path) => Some("/healthz"),
            Some(ApiPath(api)) => {
                path.strip_prefix(api.as_str()).filter(|rest| rest.starts_with('/'))
            }
            None => None,
        }
    }

    /// The route of a request, if it has one: the first that includes one of these methods. A preflight has two, its own and
    /// the one it asks about.
    ///
    /// # Errors
    /// Fails with [`TwoRoutes`] if the request would take another route at an upstream that is more lenient about paths.
    pub fn route(
        &self,
        authority: &str,
        path: &Path,
        methods: &[&str],
    ) -> Result<Option<&Route>, TwoRoutes> {
        let first = |reading: fn(&Path) -> &[u8]| {
            self.routes.iter().position(|route| {
                route.matches.includes(authority, path, reading)
                    && (route.methods.is_empty()
                        || route.methods.iter().any(|Method(one)| {
                            // a server answers `HEAD` as `GET`
                            methods
                                .iter()
                                .any(|method| one == method || (one == "GET" && *method == "HEAD"))
                        }))
            })
        };
        match first(Path::strict) {
            found if found.is_some() && found != first(Path::lenient) => Err(TwoRoutes),
            found => Ok(found.and_then(|place| self.routes.get(place))),
        }
    }

    /// How tokens are read and verified, if the file says so.
    #[must_use]
    pub const fn jwt(&self) -> Option<&Jwt> {
        self.jwt.as_ref()
    }

    /// The networks of proxies that are trusted to say which client a request is from.
    #[must_use]
    pub fn trusted_proxies(&self) -> &[Network] {
        &self.trusted_proxies
    }
}

/// A path takes one route as a strict server reads it, and another one as a lenient server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TwoRoutes;

/// A route: the requests that it matches, the policies that decide on them, and their upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    matches: Match,
    methods: Vec<Method>,
    policies: Vec<RoutePolicy>,
    upstream: Option<Upstream>,
    cost: Option<u64>,
    counts_preflights: bool,
    origins: Vec<Origin>,
    metering: Option<Arc<Metering>>,
}

impl Route {
    /// The policies that decide, one after another; none if requests pass without being counted.
    #[must_use]
    pub fn policies(&self) -> &[RoutePolicy] {
        &self.policies
    }

    /// The start of the URL of the upstream, without a slash at its end; `None` for the request's own URL.
    #[must_use]
    pub fn upstream(&self) -> Option<&str> {
        self.upstream.as_ref().map(|Upstream(url)| url.as_str())
    }

    /// The cost of a request of the route under each policy; `None` for the cost that the policy states.
    #[must_use]
    pub const fn cost(&self) -> Option<u64> {
        self.cost
    }

    /// Whether a preflight of a browser is counted like any other request.
    #[must_use]
    pub const fn counts_preflights(&self) -> bool {
        self.counts_preflights
    }

    /// How the true cost of a request is known once its answer has passed; `None` if the cost is known before.
    #[must_use]
    pub const fn metering(&self) -> Option<&Arc<Metering>> {
        self.metering.as_ref()
    }

    /// The origins whose pages may read the gateway's own answers, each as browsers write it; or `*` alone, which stands for
    /// all of them.
    pub fn origins(&self) -> impl Iterator<Item = &str> {
        self.origins.iter().map(|Origin(origin)| origin.as_str())
    }
}

/// Says which requests match, and what happens to them.
impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Match { host, path, and_below, .. } = &self.matches;
        let methods: Vec<_> = self.methods.iter().map(|Method(method)| method.as_str()).collect();
        let space = if methods.is_empty() { "" } else { " " };
        let (host, below) =
            (host.as_deref().unwrap_or_default(), if *and_below { "/*" } else { "" });
        write!(f, "{}{space}{host}{path}{below}: ", methods.join(", "))?;
        let names: Vec<_> = self.policies.iter().map(|each| each.policy().name()).collect();
        match names.as_slice() {
            [] => f.write_str("not counted, ")?,
            names => write!(f, "by {}, ", names.join(" and "))?,
        }
        if let Some(class) = self.policies.iter().find_map(RoutePolicy::class) {
            write!(f, "of class {class}, ")?;
        }
        if let Some(cost) = self.cost {
            write!(f, "at a cost of {cost}, ")?;
        }
        if let Some(metering) = &self.metering {
            write!(f, "{metering}, ")?;
        }
        write!(f, "to {}", self.upstream().unwrap_or("its own URL"))
    }
}

form! {
    pub(crate) struct RouteForm {
        r#match: Match,
        methods: Vec<Method> = Vec::new(),
        policy: Option<String> = None,
        policies: Option<Vec<String>> = None,
        upstream: Option<Upstream> = None,
        class: Option<String> = None,
        cost: Option<Bounded<1>> = None,
        count_preflight: Option<bool> = None,
        origins: Vec<Origin> = Vec::new(),
        estimate: Option<Sum> = None,
        actual: Option<Sum> = None,
        count_if: Option<CountIf> = None,
        if_unknown: Option<IfUnknown> = None,
    }
}

impl RouteForm {
    /// # Errors
    /// The message names the field, and says what was expected and found.
    pub(crate) fn route<'a>(
        self,
        find: impl Fn(&str) -> Option<&'a Arc<Policy>>,
    ) -> Result<Route, String> {
        let Self { r#match: matches, methods, policy, policies, upstream, class, .. } = self;
        let (cost, count_preflight) = (self.cost.map(Bounded::get), self.count_preflight);
        let Self { estimate, actual, count_if, if_unknown, .. } = self;
        if cost.is_some() && estimate.is_some() {
            return Err("`estimate`: expected it or `cost`, found both".to_owned());
        }
        let metering = MeteringForm { estimate, actual, count_if, if_unknown }.metering()?;
        if upstream.is_none() && matches.host.is_none() {
            // otherwise a client could choose the host that its request is sent to
            return Err(
                "`match`: expected a host before the path, as in \"www.example.com/*\", because the route has \
                 no `upstream`; found a path alone"
                    .to_owned(),
            );
        }
        let said = RoutePolicies {
            policy: policy.as_deref(),
            policies: policies.as_deref(),
            class: class.as_deref(),
            cost,
            metering: metering.as_ref(),
        };
        let policies = said.read(find)?;
        let counts =
            class.is_some() || cost.is_some() || count_preflight.is_some() || metering.is_some();
        if policies.is_empty() && counts {
            let fields = "`class`, `cost`, `count_preflight`, `actual` and `count_if`";
            return Err(format!("`policy`: expected it beside {fields}, found none"));
        }
        let (counts_preflights, origins) = (count_preflight == Some(true), self.origins);
        if origins.len() > 1 && origins.iter().any(|Origin(origin)| origin == "*") {
            return Err("`origins`: expected \"*\" alone, found other origins beside it".to_owned());
        }
        let metering = metering.map(Arc::new);
        Ok(Route {
            matches,
            methods,
            policies,
            upstream,
            cost,
            counts_preflights,
            origins,
            metering,
        })
    }
}

/// A path, or a path and everything below it, on one host or on all.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Match {
    /// With its port, in lower case.
    host: Option<String>,
    /// As the file has it, without `/*` at its end.
    path: String,
    as_read: Path,
    and_below: bool,
}

impl Form for Match {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.parse(Self::parse)
    }
}

impl Match {
    fn parse(text: &str) -> Result<Self, String> {
        let invalid = || {
            format!(
                "expected a path such as \"/login\" or \"/api/*\", with or without a host before it; found {}",
                Quoted(text)
            )
        };
        let (host, path) =
            text.split_at_checked(text.find('/').ok_or_else(invalid)?).ok_or_else(invalid)?;
        let below = path.strip_suffix("/*");
        let as_read = match below {
            Some(below) if below.ends_with('/') => None,
            Some(below) => written_path(or_slash(below)),
            None => written_path(path),
        };
        let is_host = host.is_empty() || is_authority(host);
        let as_read = as_read.filter(|_| is_host).ok_or_else(invalid)?;
        let host = (!host.is_empty()).then(|| host.to_ascii_lowercase());
        Ok(Self { host, path: below.unwrap_or(path).into(), as_read, and_below: below.is_some() })
    }
}

fn or_slash(path: &str) -> &str {
    if path.is_empty() { "/" } else { path }
}

/// Whether two authorities name one host. A name may end with a dot, and the ports of HTTP need not be written.
fn is_same_host(one: &str, other: &str) -> bool {
    let parts = |authority: &str| {
        let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
        let parts = authority.rsplit_once(':').filter(|(_, port)| is_port(port));
        let (name, port) = parts.unwrap_or((authority, ""));
        let port = Some(port).filter(|port| !["", "80", "443"].contains(port));
        (name.trim_end_matches('.').to_ascii_lowercase(), port.map(String::from))
    };
    parts(one) == parts(other)
}

impl Match {
    fn includes(&self, authority: &str, path: &Path, reading: fn(&Path) -> &[u8]) -> bool {
        let is_host = self.host.as_ref().is_none_or(|host| is_same_host(host, authority));
        let rest = reading(path).strip_prefix(reading(&self.as_read));
        is_host
            && rest.is_some_and(|rest| match rest {
                [] => true,
                [first, ..] => self.and_below && *first == b'/',
            })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Method(String);

impl Form for Method {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.parse(|text| match is_token(text) && !text.bytes().any(|b| b.is_ascii_lowercase()) {
            true => Ok(Self(text.into())),
            false => Err(format!(
                "expected a method in capitals such as \"GET\", found {}",
                Quoted(text)
            )),
        })
    }
}

/// The start of a URL: scheme, host, and a path without a slash at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Upstream(String);

impl Form for Upstream {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.parse(Self::parse)
    }
}

impl Upstream {
    fn parse(text: &str) -> Result<Self, String> {
        let rest = ["https://", "http://"].into_iter().find_map(|scheme| text.strip_prefix(scheme));
        let valid = rest.is_some_and(|rest| {
            let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            is_authority(host) && written_path(or_slash(path)).is_some()
        });
        match valid {
            true => Ok(Self(text.trim_end_matches('/').into())),
            false => Err(format!(
                "expected a URL without a user name, query or fragment, such as \
                 \"https://origin.example/v2\"; found {}",
                Quoted(text)
            )),
        }
    }
}

/// The path under which a gateway serves the HTTP API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiPath(String);

impl Form for ApiPath {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.parse(|text| match written_path(text).is_some() && !text.ends_with('/') {
            true => Ok(Self(text.into())),
            false => Err(format!(
                "expected a path such as \"/_tidegate\" without a slash at its end, found {}",
                Quoted(text)
            )),
        })
    }
}
