//! The address of one server: what is accepted, and what to write instead of anything else.

use std::borrow::Cow;

use redis::{ConnectionInfo, IntoConnectionInfo};

use crate::store::error::StoreError;

/// Where a server is, and who asks it.
#[derive(Debug)]
pub(super) struct Single {
    pub(super) info: ConnectionInfo,
    pub(super) is_tls: bool,
}

/// Reads the address of one server. Errors do not repeat it, because it may contain a password.
///
/// Whatever this store would ignore is an error, because the caller means something by it: `?db=2` behind a host
/// would use database 0.
pub(super) fn single(text: &str) -> Result<Single, StoreError> {
    let refused = |reason: &str| Err(StoreError::Address(reason.to_owned()));
    let scheme = text.split(':').next().unwrap_or_default().to_ascii_lowercase();
    let (is_socket, is_tls) = match &*scheme {
        "redis" | "valkey" => (false, false),
        "redis+unix" | "valkey+unix" | "unix" => (true, false),
        "rediss" | "valkeys" if cfg!(feature = "tls") => (false, true),
        "rediss" | "valkeys" => {
            return refused(&format!(
                "`{scheme}://`: expected a build with the feature `tls` of the crate `tidegate`, found one without it"
            ));
        }
        _ => return refused(SCHEMES),
    };
    let Some(mut url) = redis::parse_redis_url(text) else {
        return refused(
            "expected `redis://USER:PASSWORD@HOST:PORT/DATABASE`, with `%` and two digits for each special \
             character of a password",
        );
    };
    let has_host = url.host_str().is_some_and(|host| !host.is_empty());
    if is_socket && (has_host || !url.path().starts_with('/')) {
        return refused("expected a path from the root, as in `redis+unix:///run/redis.sock`");
    }
    if !is_socket && !has_host {
        return refused("expected a host, as in `redis://127.0.0.1:6379`, found none");
    }
    if !is_socket && !url.host_str().is_some_and(is_host) {
        return refused(
            "expected the name or address of a host, found something else: a password stands before an `@`, as in \
             `redis://USER:PASSWORD@HOST:PORT`",
        );
    }
    let is_number = |text: &str| text.parse::<u32>().is_ok();
    let database = url.path().trim_matches('/');
    if !is_socket && !database.is_empty() && !is_number(database) {
        return refused(
            "expected the number of a database behind the host, as in `redis://127.0.0.1:6379/2`, found something else",
        );
    }
    if is_tls && url.fragment() == Some("insecure") {
        return refused(
            "expected no `#insecure`: the certificate of a Redis is always verified; to trust the CA that signed \
             it, name the CA's file (`--redis-ca`, `RedisTls::ca`)",
        );
    }
    let is_known = |(name, value): (Cow<'_, str>, Cow<'_, str>)| match &*name {
        "protocol" => matches!(&*value, "2" | "3" | "resp2" | "resp3"),
        "db" => is_socket && is_number(&value),
        "user" | "pass" => is_socket,
        _ => false,
    };
    if !url.query_pairs().all(is_known) || url.fragment().is_some() {
        return refused(if is_socket {
            "expected only `db=NUMBER`, `user=…`, `pass=…` and `protocol=2` or `3` after `?`, and no `#`"
        } else {
            "expected only `protocol=2` or `3` after `?`, and no `#`: the database is the path, the user and \
             the password come before the host, as in `redis://USER:PASSWORD@HOST:PORT/DATABASE`"
        });
    }
    if is_tls && url.set_scheme("redis").is_err() {
        return refused(SCHEMES); // never: both schemes are of the same kind
    }
    Ok(Single { info: url.into_connection_info()?, is_tls })
}

/// Whether this may be the name of a host, or its address. A password in its place would be shown wherever the server is named.
fn is_host(text: &str) -> bool {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let is_label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(is_of_name);
    let is_address = text.starts_with('['); // of IPv6, which the URL has checked
    is_address || text.strip_suffix('.').unwrap_or(text).split('.').all(is_label)
}

const SCHEMES: &str = "expected a scheme and `://`, as in `redis://HOST:PORT`, `rediss://HOST:PORT` for TLS, `redis+unix:///PATH`, \
                       `redis+cluster://HOST:PORT,HOST:PORT` or `redis+sentinel://HOST:PORT,HOST:PORT/MASTER`";

#[cfg(test)]
mod tests {
    use redis::ConnectionAddr;

    use super::single;

    #[test]
    fn hosts_and_sockets_are_accepted() {
        for (text, shown, database) in [
            ("redis://127.0.0.1", "127.0.0.1:6379", 0),
            ("redis://127.0.0.1/", "127.0.0.1:6379", 0),
            ("Redis://h:6380/2", "h:6380", 2),
            ("valkey://h:6380", "h:6380", 0),
            ("redis://[::1]:6380?protocol=3", "::1:6380", 0),
            ("redis://my_redis-1.cache.example.:6380", "my_redis-1.cache.example.:6380", 0),
            ("redis://user:sec%3Fret@h", "h:6379", 0),
            ("redis+unix:///run/redis.sock", "/run/redis.sock", 0),
            ("redis+unix:///run/redis.sock?db=2&user=u&pass=p&protocol=2", "/run/redis.sock", 2),
            ("valkey+unix:///run/redis.sock", "/run/redis.sock", 0),
            ("unix:/run/redis.sock", "/run/redis.sock", 0),
        ] {
            let found = single(text).unwrap_or_else(|error| panic!("{text}: {error}")).info;
            assert_eq!(
                (&*found.addr().to_string(), found.redis_settings().db()),
                (shown, database)
            );
            let is_socket = matches!(found.addr(), ConnectionAddr::Unix(_));
            assert_eq!(is_socket, shown.starts_with('/'), "{text}");
        }
    }

    #[test]
    fn anything_else_says_what_to_write_and_repeats_no_password() {
        let scheme = super::SCHEMES;
        let url = "expected `redis://USER:PASSWORD@HOST:PORT/DATABASE`, with `%` and two digits for each special \
                   character of a password";
        let host = "expected a host, as in `redis://127.0.0.1:6379`, found none";
        let name =
            "expected the name or address of a host, found something else: a password stands";
        let long = &format!("redis://{}:6379", "secret".repeat(11)); // labels have at most 63 letters
        let path = "expected a path from the root, as in `redis+unix:///run/redis.sock`";
        let database = "expected the number of a database behind the host, as in";
        let options = "expected only `protocol=2` or `3` after `?`, and no `#`";
        let of_socket = "expected only `db=NUMBER`, `user=…`, `pass=…` and `protocol=2` or `3` after `?`, and no `#`";
        for (text, expected) in [
            ("", scheme),
            ("localhost", scheme),
            ("127.0.0.1:6379", scheme),
            ("user:secret@h:6379", scheme),
            ("redi://h", scheme),
            ("redis-sentinel://h", scheme),
            ("http://h", scheme),
            ("redis://h:99999", url),
            ("redis://h secret", url),
            ("redis://user:sec?ret@h", url),
            ("redis:", host),
            ("redis://", host),
            ("redis:///2", host),
            ("redis:secret@h:6379", host),
            ("redis://secret%21:6379", name),
            ("redis://secret=:6379", name),
            ("redis://secret~+", name),
            ("redis://secret..h", name),
            (long, name),
            ("redis+unix:", path),
            ("redis+unix://", path),
            ("redis+unix://run/redis.sock", path),
            ("unix:redis.sock", path),
            ("redis://h/x", database),
            ("redis://h/-1", database),
            ("redis://h?db=2", options),
            ("redis://h?pass=secret", options),
            ("redis://h?protocol=resp9", options),
            ("redis://h#insecure", options),
            ("redis+unix:///run/redis.sock?db=x", of_socket),
            ("redis+unix:///run/redis.sock?database=2", of_socket),
            ("redis+unix:///run/redis.sock#2", of_socket),
        ] {
            let found = single(text).expect_err(text).to_string();
            assert!(found.starts_with(expected), "{text}: {found}");
            assert!(!found.contains("secret"), "{text}: {found}");
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn an_address_over_tls_has_all_that_one_without_it_has() {
        for scheme in ["rediss", "valkeys", "RedisS"] {
            let found = single(&format!("{scheme}://user:sec%3Fret@h:6380/2?protocol=3")).unwrap();
            let login = found.info.redis_settings();
            assert_eq!((&*found.info.addr().to_string(), login.db()), ("h:6380", 2));
            assert_eq!((login.username(), login.password()), (Some("user"), Some("sec?ret")));
            assert!(found.is_tls && !single("redis://h").unwrap().is_tls);
        }
        let host = "expected a host, as in `redis://127.0.0.1:6379`, found none";
        let options = "expected only `protocol=2` or `3` after `?`, and no `#`";
        for (text, expected) in [
            ("rediss://", host),
            ("rediss://user:secret@h#insecure", "expected no `#insecure`: the certificate"),
            ("valkeys://h#insecure", "expected no `#insecure`: the certificate"),
            ("rediss://h?insecure=true", options),
            ("rediss://h#secret", options),
            ("rediss+unix:///run/redis.sock", super::SCHEMES),
        ] {
            let found = single(text).unwrap_err().to_string();
            assert!(found.starts_with(expected), "{text}: {found}");
            assert!(!found.contains("secret"), "{text}: {found}");
        }
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn an_address_over_tls_says_which_feature_is_missing() {
        for scheme in ["rediss", "valkeys"] {
            let found = single(&format!("{scheme}://user:secret@h:6379")).unwrap_err().to_string();
            let expected = format!("`{scheme}://`: expected a build with the feature `tls`");
            assert!(found.starts_with(&expected) && !found.contains("secret"), "{found}");
        }
    }
}
