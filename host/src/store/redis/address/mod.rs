//! The address of a Redis: one server, a Cluster, or a master that sentinels name.

mod single;

use redis::{ConnectionAddr, RedisConnectionInfo};

use self::single::{Single, single};
use crate::store::error::StoreError;

/// Where a Redis is, and who asks it.
#[derive(Debug)]
pub(super) struct Address {
    pub(super) topology: Topology,
    /// The server, some nodes of the Cluster, or the sentinels. At least one.
    pub(super) servers: Vec<ConnectionAddr>,
    pub(super) login: RedisConnectionInfo,
    pub(super) is_tls: bool,
}

/// How the servers of a Redis hang together.
#[derive(Debug)]
pub(super) enum Topology {
    Single,
    Cluster,
    /// Sentinels name the master.
    Sentinel {
        master: String,
        /// Who asks the sentinels.
        login: Box<RedisConnectionInfo>,
    },
}

/// Reads the address of a Redis. Errors do not repeat it, because it may contain a password.
pub(super) fn address(text: &str) -> Result<Address, StoreError> {
    let (scheme, rest) = text.split_once("://").unwrap_or_default();
    let scheme = scheme.to_ascii_lowercase();
    if let Some(scheme) = scheme.strip_suffix("+cluster") {
        return cluster(&Several::split(scheme, rest));
    }
    if let Some(scheme) = scheme.strip_suffix("+sentinel") {
        return sentinel(&Several::split(scheme, rest));
    }
    let Single { info, is_tls } = single(text)?;
    let (servers, login) = (vec![info.addr().clone()], info.redis_settings().clone());
    Ok(Address { topology: Topology::Single, servers, login, is_tls })
}

/// The address as [`Redis::without_password`](super::Redis::without_password) shows it.
pub(super) fn without_password(text: &str) -> String {
    if address(text).is_err() {
        return "…".to_owned();
    }
    let (place, query) = text.split_at(text.find(['?', '#']).unwrap_or(text.len()));
    let query = if query.is_empty() { "" } else { "?…" };
    match place.split_once("://").zip(place.rsplit_once('@')) {
        Some(((scheme, _), (_, hosts))) => format!("{scheme}://…@{hosts}{query}"),
        None => format!("{place}{query}"),
    }
}

fn cluster(several: &Several<'_>) -> Result<Address, StoreError> {
    if !matches!(several.path, "" | "0") {
        return refused("expected no database after the nodes: a Cluster has only the database 0");
    }
    let nodes = several.read(&several.query(|_| true), "", DEFAULT_PORT)?;
    Ok(Address { topology: Topology::Cluster, ..nodes })
}

fn sentinel(several: &Several<'_>) -> Result<Address, StoreError> {
    let (master, database) = several.path.split_once('/').unwrap_or((several.path, ""));
    // the characters that Sentinel allows
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if master.is_empty() || !master.bytes().all(is_name) {
        return refused(
            "expected the name that the sentinels have for the master, as in \
             `redis+sentinel://HOST:26379,HOST:26379/mymaster`",
        );
    }
    let own =
        |name: &str| several.pairs().rev().find_map(|(key, value)| (key == name).then_some(value));
    let login = match (own(SENTINEL_USER), own(SENTINEL_PASSWORD)) {
        (None, None) => String::new(),
        (user, password) => {
            format!("{}:{}@", user.unwrap_or_default(), password.unwrap_or_default())
        }
    };
    let others = several.query(|name| ![SENTINEL_USER, SENTINEL_PASSWORD].contains(&name));
    let of_sentinels = Several { user: &login, ..*several };
    let sentinels = of_sentinels.read(&others, "", SENTINEL_PORT)?;
    let masters = several.read(&others, database, SENTINEL_PORT)?;
    let login = Box::new(sentinels.login);
    let topology = Topology::Sentinel { master: master.to_owned(), login };
    Ok(Address { topology, ..masters })
}

/// The parts of `SCHEME://USER:PASSWORD@HOST:PORT,HOST:PORT/PATH?QUERY`.
#[derive(Clone, Copy)]
struct Several<'t> {
    scheme: &'t str,
    /// With its `@`; empty without a user.
    user: &'t str,
    hosts: &'t str,
    path: &'t str,
    /// What follows the path: `?QUERY`, or `#…`, which is an error.
    end: &'t str,
}

impl<'t> Several<'t> {
    fn split(scheme: &'t str, rest: &'t str) -> Self {
        let (place, end) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
        let (servers, path) = place.split_once('/').unwrap_or((place, ""));
        let (user, hosts) = servers.split_at(servers.rfind('@').map_or(0, |at| at + 1));
        Self { scheme, user, hosts, path: path.trim_end_matches('/'), end }
    }

    fn pairs(&self) -> impl DoubleEndedIterator<Item = (&'t str, &'t str)> {
        let query = self.end.strip_prefix('?').unwrap_or_default();
        let query = query.split_once('#').map_or(query, |(query, _)| query);
        query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    }

    /// What follows the path, with these options only.
    fn query(&self, is_kept: impl Fn(&str) -> bool) -> String {
        let kept: Vec<_> = self
            .pairs()
            .filter(|(name, _)| !name.is_empty() && is_kept(name))
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let query = if kept.is_empty() { String::new() } else { format!("?{}", kept.join("&")) };
        match self.end.find('#') {
            Some(at) => query + &self.end[at..],
            None => query,
        }
    }

    /// Reads each host as the address of one server.
    fn read(&self, query: &str, database: &str, port: u16) -> Result<Address, StoreError> {
        let mut servers = Vec::new();
        let mut last = None;
        for host in self.hosts.split(',') {
            if host.is_empty() {
                return refused(
                    "expected a host before and after each comma, as in `redis+cluster://HOST:PORT,HOST:PORT`, found none",
                );
            }
            // `[::1]` has colons, and no port
            let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
            let port = if has_port { String::new() } else { format!(":{port}") };
            let Self { scheme, user, .. } = self;
            let read = single(&format!("{scheme}://{user}{host}{port}/{database}{query}"))?;
            if !matches!(read.info.addr(), ConnectionAddr::Tcp(..)) {
                return refused(
                    "expected hosts, found a socket: a Cluster and sentinels are asked over TCP",
                );
            }
            servers.push(read.info.addr().clone());
            last = Some(read);
        }
        match last {
            Some(Single { info, is_tls }) => {
                let login = info.redis_settings().clone();
                Ok(Address { topology: Topology::Single, servers, login, is_tls })
            }
            None => refused("expected a host"), // never: a split has a first part
        }
    }
}

fn refused<T>(reason: &str) -> Result<T, StoreError> {
    Err(StoreError::Address(reason.to_owned()))
}

const DEFAULT_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// The options after `?` that say who asks the sentinels.
const SENTINEL_USER: &str = "sentinel_username";
const SENTINEL_PASSWORD: &str = "sentinel_password";

#[cfg(test)]
mod tests {
    use super::{Topology, address, without_password};

    fn servers(text: &str) -> (Vec<String>, super::Address) {
        let found = address(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        (found.servers.iter().map(ToString::to_string).collect(), found)
    }

    #[test]
    fn a_cluster_has_several_nodes_and_one_login() {
        for (text, expected) in [
            ("redis+cluster://h", &["h:6379"][..]),
            ("Redis+Cluster://h:7000/", &["h:7000"]),
            ("valkey+cluster://a:7000,b,c:7002/0", &["a:7000", "b:6379", "c:7002"]),
            ("redis+cluster://[::1]:7000,[::2]?protocol=3", &["::1:7000", "::2:6379"]),
        ] {
            let (found, address) = servers(text);
            assert_eq!(found, expected, "{text}");
            assert!(matches!(address.topology, Topology::Cluster) && !address.is_tls);
        }
        let (found, address) = servers("redis+cluster://u:a%2Cb%40@a:1,b:2");
        assert_eq!(found, ["a:1", "b:2"]);
        assert_eq!((address.login.username(), address.login.password()), (Some("u"), Some("a,b@")));
    }

    #[test]
    fn sentinels_have_a_port_and_a_login_of_their_own() {
        let text = "redis+sentinel://u:s%40@a,b:5/mymaster/2?sentinel_password=x%26y&protocol=3";
        let (found, address) = servers(text);
        assert_eq!(found, ["a:26379", "b:5"]);
        let login = &address.login;
        assert_eq!((login.username(), login.password(), login.db()), (Some("u"), Some("s@"), 2));
        let Topology::Sentinel { master, login } = address.topology else { panic!("{text}") };
        assert_eq!((&*master, login.username(), login.password()), ("mymaster", None, Some("x&y")));
        assert_eq!(login.db(), 0);

        let (_, address) = servers("valkey+sentinel://:secret@a/m?sentinel_username=w");
        let Topology::Sentinel { login, .. } = address.topology else { panic!() };
        assert_eq!((login.username(), login.password()), (Some("w"), None));
        let (_, address) = servers("redis+sentinel://:secret@a/m");
        let Topology::Sentinel { login, .. } = address.topology else { panic!() };
        assert_eq!((login.username(), login.password()), (None, None));
    }

    #[test]
    fn anything_else_says_what_to_write_and_repeats_no_password() {
        let host = "expected a host before and after each comma";
        let url = "expected `redis://USER:PASSWORD@HOST:PORT/DATABASE`";
        let database = "expected no database after the nodes: a Cluster has only the database 0";
        let master = "expected the name that the sentinels have for the master";
        let scheme = "expected a scheme and `://`, as in `redis://HOST:PORT`";
        for (text, expected) in [
            ("redis+cluster://", host),
            ("redis+cluster:h", scheme),
            ("redis+cluster://u:secret@a,", host),
            ("redis+cluster://u:secret@a:x,b", url),
            ("redis+cluster://u:secret@a/1", database),
            ("redis+cluster://u:secret@a,b/0/1", database),
            ("redis+cluster://a?db=1", "expected only `protocol=2` or `3` after `?`"),
            ("redis+cluster://a#insecure", "expected only `protocol=2` or `3` after `?`"),
            ("redis+unix+cluster://a", "expected a path"),
            ("http+cluster://u:secret@a", scheme),
            ("redis+sentinel://u:secret@a,b", master),
            ("redis+sentinel://u:secret@a/", master),
            ("redis+sentinel://u:secret@a/my master", master),
            ("redis+sentinel://a/m/x", "expected the number of a database behind the host"),
            ("redis+sentinel://a/m?sentinel_pass=secret", "expected only `protocol=2` or `3`"),
        ] {
            let found = address(text).expect_err(text).to_string();
            assert!(found.starts_with(expected), "{text}: {found}");
            assert!(!found.contains("secret"), "{text}: {found}");
        }
    }

    #[test]
    fn an_address_is_shown_without_its_password_and_a_refused_one_not_at_all() {
        for (text, shown) in [
            ("redis://127.0.0.1:6379/2", "redis://127.0.0.1:6379/2"),
            ("redis://my_redis-1.cache.example.", "redis://my_redis-1.cache.example."),
            ("redis://user:secret@h:6379/2", "redis://…@h:6379/2"),
            ("redis://user:sec@ret@h", "redis://…@h"),
            ("redis://:secret@[::1]:1?protocol=3", "redis://…@[::1]:1?…"),
            ("redis+unix:///run/redis.sock", "redis+unix:///run/redis.sock"),
            ("unix:/run/redis.sock?pass=sec@ret", "unix:/run/redis.sock?…"),
            ("redis+cluster://u:secret@a:1,[::1]:2", "redis+cluster://…@a:1,[::1]:2"),
            ("redis+sentinel://a,b:1/mymaster/2", "redis+sentinel://a,b:1/mymaster/2"),
            ("redis+sentinel://a/m?sentinel_password=secret", "redis+sentinel://a/m?…"),
        ] {
            assert_eq!(without_password(text), shown, "{text}");
        }
        for text in [
            "",
            "secret",
            "secret:6379",
            "secret@h:6379",
            "redis:secret@h:6379",
            "secret://h",
            "user:secret://x@h",
            "redis://secret:127.0.0.1:17010",
            "redis://sec/ret:127.0.0.1:17010",
            "redis://user:sec/ret@h",
            "redis://user:sec?ret@h",
            "redis://secret=",
            "redis://h/secret",
            "redis://h/2/secret",
            "redis://h?password=secret",
            "redis://h#secret",
            "redis+unix://secret",
            "redis+cluster://a,b/secret",
            "redis+cluster://a,secret:b:2",
            "redis+sentinel://a,b/m/secret",
        ] {
            assert_eq!(without_password(text), "…", "{text}");
            let error = address(text).unwrap_err().to_string();
            assert!(!error.contains("secret") && error.contains("expected"), "{text}: {error}");
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn all_nodes_are_asked_over_tls() {
        for text in ["rediss+cluster://u:p@a:1,b:2", "valkeys+sentinel://a:1,b:2/m"] {
            let (found, address) = servers(text);
            assert_eq!(found, ["a:1", "b:2"], "{text}");
            assert!(address.is_tls, "{text}");
        }
    }
}
