//! Users of Redis: the rights that the store needs, and what it does without one of them or with a wrong password.

use std::fs;
use std::time::Duration;

use tidegate::local::RedisServer;
use tidegate::store::{Redis, StoreError};
use tidegate_tests::{file, until, until_async};

use crate::host::Host;
use crate::proxy::Proxy;
use crate::{NOW, ask, bucket, on, within};

/// The rules of the user `tidegate` in docs/operations.md, with the password `secret`.
pub fn documented() -> Vec<String> {
    let page = fs::read_to_string(file("../docs/operations.md")).unwrap();
    let line = page.lines().find_map(|line| line.strip_prefix("ACL SETUSER tidegate ")).unwrap();
    line.split(' ').map(|rule| rule.replace(">PASSWORD", ">secret")).collect()
}

pub async fn set_user(server: &RedisServer, rules: &[String]) {
    let rules = rules.iter().map(String::as_bytes);
    let command: Vec<&[u8]> =
        [&b"ACL"[..], b"SETUSER", b"tidegate", b"reset"].into_iter().chain(rules).collect();
    let _: () = ask(server, &command).await;
}

fn as_user(proxy: &Proxy, password: &str) -> String {
    proxy.url.replace("://", &format!("://tidegate:{password}@"))
}

/// What remains after operations that need all commands of the script.
async fn remains(server: &RedisServer, url: &str) -> Result<Vec<u64>, StoreError> {
    let policy = bucket();
    let key = on(&policy, "k");
    let _: () = ask(server, &[b"FLUSHALL"]).await;
    let _: () = ask(server, &[b"SCRIPT", b"FLUSH"]).await;
    let store = || Redis::new(url, within(Duration::from_secs(10))).unwrap();
    let (one, other) = (store(), store());
    one.ping().await?;
    let mut remaining = Vec::new();
    for store in [&one, &one, &other, &one] {
        remaining.push(store.operate(&key, NOW, 1).await?.decision.remaining());
    }
    let _: () = ask(server, &[b"FLUSHALL"]).await; // the store expects a state that is gone
    remaining.push(one.operate(&key, NOW, 1).await?.decision.remaining());
    assert!(one.blobs(&key).await?[0].is_some());
    Ok(remaining)
}

#[tokio::test]
async fn a_user_needs_the_documented_rights_and_no_others() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(&server, Duration::ZERO);
    let (rules, url) = (documented(), as_user(&proxy, "secret"));
    let expected = [4, 3, 2, 1, 4];
    set_user(&server, &rules).await;
    assert_eq!(remains(&server, &url).await.unwrap(), expected);

    let mut rights = 0;
    for right in rules.iter().filter(|rule| rule.starts_with(['+', '~'])) {
        let others: Vec<_> = rules.iter().filter(|rule| *rule != right).cloned().collect();
        set_user(&server, &others).await;
        let found = remains(&server, &url).await;
        assert!(found.is_err() || found.unwrap() != expected, "{right} is not needed");
        rights += 1;
    }
    assert_eq!(rights, 8);
}

#[tokio::test]
async fn another_database_needs_the_right_to_select_it() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(&server, Duration::ZERO);
    let url = as_user(&proxy, "secret") + "/2";
    let ping = async || Redis::new(&url, within(Duration::from_secs(10))).unwrap().ping().await;
    set_user(&server, &documented()).await;
    let error = ping().await.unwrap_err().to_string();
    assert!(error.contains("select"), "{error}");
    let address = proxy.url.strip_prefix("redis://").unwrap();
    assert!(error.ends_with(&format!("({address})")) && !error.contains("secret"), "{error}");
    set_user(&server, &[documented(), vec!["+select".to_owned()]].concat()).await;
    ping().await.unwrap();
}

#[test]
fn on_error_decides_without_a_right_and_the_log_says_which() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(&server, Duration::ZERO);
    for right in ["+evalsha", "+get", "+set"] {
        let rules: Vec<_> = documented().into_iter().filter(|rule| rule != right).collect();
        runtime.block_on(set_user(&server, &rules));
        let host =
            Host::start(&["--redis", &as_user(&proxy, "secret"), "--redis-deadline", "10000"]);
        host.on_error_decides();
        let log = host.log();
        assert!(
            log.contains("redis: ") && log.contains("permission") || log.contains("can't run"),
            "{log}"
        );
        assert!(!log.contains("secret"), "{log}");
        runtime.block_on(set_user(&server, &documented()));
        host.decides_soon();
    }
}

#[test]
fn on_error_decides_while_the_password_is_wrong_and_redis_decides_when_it_is_right_again() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(&server, Duration::ZERO);
    runtime.block_on(set_user(&server, &documented()));
    let url = as_user(&proxy, "secret");
    let host = Host::start(&["--redis", &url, "--redis-deadline", "10000"]);
    assert!(host.decides());

    let changed: Vec<_> =
        documented().iter().map(|rule| rule.replace(">secret", ">changed")).collect();
    runtime.block_on(async {
        set_user(&server, &changed).await;
        let _: u64 = ask(&server, &[b"CLIENT", b"KILL", b"USER", b"tidegate"]).await;
    });
    let address = proxy.url.strip_prefix("redis://").unwrap();
    let failed = format!("Password authentication failed ({address})");
    // the log takes one line a second, and the first one says that the connection broke
    until("the log says so", || {
        host.on_error_decides();
        host.log().contains(&failed)
    });
    assert!(!host.log().contains("secret"), "{}", host.log());
    runtime.block_on(set_user(&server, &documented()));
    host.decides_soon();
}

/// The rights that docs/operations.md names for a policy with `on_error = "local"`.
fn documented_for_local() -> Vec<String> {
    let page = fs::read_to_string(file("../docs/operations.md")).unwrap();
    let told = page.split_once("A policy with `on_error = \"local\"` also needs `").unwrap().1;
    told.split('`').next().unwrap().split(' ').map(str::to_owned).collect()
}

#[tokio::test]
async fn a_host_announces_itself_with_the_documented_rights_and_not_without_one() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(&server, Duration::ZERO);
    let (rights, url) = (documented_for_local(), as_user(&proxy, "secret"));
    let announced = || {
        let store = Redis::new(&url, within(Duration::from_secs(10))).unwrap();
        store.announce();
        store
    };
    set_user(&server, &[documented(), rights.clone()].concat()).await;
    let store = announced();
    until_async("it counts itself", async || store.hosts() == Some(1)).await;
    for right in &rights {
        let others = rights.iter().filter(|other| *other != right).cloned().collect();
        set_user(&server, &[documented(), others].concat()).await;
        let _: () = ask(&server, &[b"ACL", b"LOG", b"RESET"]).await;
        let store = announced();
        let refused = right.trim_start_matches('+');
        until_async(format_args!("{refused} is refused"), async || {
            let told: redis::Value = ask(&server, &[b"ACL", b"LOG"]).await;
            format!("{told:?}").contains(refused)
        })
        .await;
        assert_eq!(store.hosts(), None, "{right}");
    }
    assert_eq!(rights.len(), 5);
}
