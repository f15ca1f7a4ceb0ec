//! Real sentinels, and a master that they replace.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::mem;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use tidegate::local::{Process, RedisServer, at_a_port};
use tidegate::store::Redis;

use super::load::{Load, holds};
use super::{NOW, ask, on, within};

const DEADLINE: Duration = Duration::from_millis(250);

/// A master, its replica, and three sentinels.
struct Watched {
    master: RedisServer,
    replica: RedisServer,
    _sentinels: Vec<Process>,
    url: String,
    _folder: TempDir,
}

impl Watched {
    async fn start() -> Self {
        let (master, at) = listening(&[]);
        let port = at.to_string();
        let follow = ["--replicaof", "127.0.0.1", &port, "--repl-diskless-sync-delay", "0"];
        let (replica, _) = listening(&follow);
        holds(async || {
            let told: String = ask(&replica, &[b"INFO", b"replication"]).await;
            told.contains("master_link_status:up")
        })
        .await;
        let folder = tempfile::tempdir().unwrap();
        let (mut sentinels, mut ports) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            let (sentinel, port) = sentinel(&folder, at);
            sentinels.push(sentinel);
            ports.push(port);
        }
        for port in &ports {
            holds(async || {
                let told = ask_sentinel(*port, &["SENTINEL", "MASTER", "mymaster"]).await;
                let of = |name: &str| {
                    let at = told.iter().position(|field| field == name)?;
                    told.get(at + 1).cloned()
                };
                of("num-other-sentinels").as_deref() == Some("2")
                    && of("num-slaves").as_deref() == Some("1")
            })
            .await;
        }
        let hosts: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let url = format!("redis+sentinel://tidegate:of-the-master@{}/mymaster", hosts.join(","));
        Self { master, replica, _sentinels: sentinels, url, _folder: folder }
    }
}

/// A server with a password that listens on a port.
fn listening(more: &[&str]) -> (RedisServer, u16) {
    let start = |port: u16| {
        let own = ["--bind", "127.0.0.1", "--port", &port.to_string()].map(str::to_owned);
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        // the default user needs no password, so that the test can ask; the store must log in as another one
        let login = ["--user", "tidegate", "on", ">of-the-master", "~*", "+@all"];
        RedisServer::start_with([&own[..], &login, more].concat()).map(|server| (server, port))
    };
    at_a_port(start).unwrap()
}

/// A sentinel of the master at this port, and its own port.
fn sentinel(folder: &TempDir, master: u16) -> (Process, u16) {
    let start = |port: u16| {
        let file = folder.path().join(format!("{port}.conf"));
        let text = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\n\
             sentinel monitor mymaster 127.0.0.1 {master} 2\n\
             sentinel down-after-milliseconds mymaster 1000\n\
             sentinel failover-timeout mymaster 3000\n",
            folder.path().display()
        );
        fs::write(&file, text)?;
        let program =
            env::var_os("TIDEGATE_REDIS_SERVER").unwrap_or_else(|| OsString::from("redis-server"));
        let mut command = Command::new(program);
        let mut sentinel = Process::start("a sentinel", command.arg(file).arg("--sentinel"))?;
        // it tells its id once it has the port
        sentinel.announced(|line| line.contains("Sentinel ID is").then_some(()))?;
        Ok((sentinel, port))
    };
    at_a_port(start).unwrap()
}

async fn ask_sentinel(port: u16, question: &[&str]) -> Vec<String> {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).unwrap();
    let Ok(mut connection) = client.get_multiplexed_async_connection().await else {
        return Vec::new(); // it has just been started
    };
    let mut command = redis::Cmd::new();
    question.iter().for_each(|part| _ = command.arg(part));
    command.query_async(&mut connection).await.unwrap_or_default()
}

/// Sentinels close all connections of a server that becomes the master.
async fn is_master(server: &RedisServer) -> bool {
    let client = redis::Client::open(server.url()).unwrap();
    let Ok(mut connection) = client.get_multiplexed_async_connection().await else { return false };
    let told: redis::RedisResult<String> =
        redis::cmd("INFO").arg("replication").query_async(&mut connection).await;
    told.is_ok_and(|told| told.contains("role:master"))
}

#[tokio::test]
async fn a_master_that_is_killed_is_replaced_and_the_store_finds_the_new_one() {
    let mut watched = Watched::start().await;
    let stores = |deadline| [0; 2].map(|_| Redis::new(&watched.url, within(deadline)).unwrap());
    let mut load = Load::new(stores(Duration::from_secs(10)).into(), 30);
    load.recovers().await;
    let patient = mem::replace(&mut load.stores, stores(DEADLINE).into());
    load.recovers().await;
    let account = load
        .while_running(async {
            load.left(&load.keys[0]).await;
            watched.master.signal("KILL").unwrap();
            holds(async || is_master(&watched.replica).await).await;
            load.recovers().await;
        })
        .await;
    println!("a master killed, with three sentinels: {account:?}");
    assert!(account.failed > 0, "{account:?}");
    // a server sends its replies and what its replica gets in one pass: at most the calls under way
    assert!(account.beyond <= 2 * 4 * 64 && account.lost <= account.failed, "{account:?}");

    // the old master comes back, empty, and the sentinels make it a replica: no store that waits long enough has an error
    load.stores = patient;
    load.recovers().await;
    watched.master.restart().unwrap();
    let account = load.while_running(load.recovers()).await;
    assert_eq!((account.failed, account.beyond), (0, 0), "{account:?}");
}

#[tokio::test]
async fn what_is_wrong_with_sentinels_is_said() {
    let policy = super::bucket();
    let error = async |url: &str| {
        let store = Redis::new(url, within(Duration::from_secs(10))).unwrap();
        store.operate(&on(&policy, "k"), NOW, 1).await.unwrap_err().to_string()
    };
    let folder = tempfile::tempdir().unwrap();
    let (_server, port) = listening(&[]);
    let (_alone, at) = sentinel(&folder, port);
    holds(async || !ask_sentinel(at, &["SENTINEL", "MASTER", "mymaster"]).await.is_empty()).await;
    let url = format!("redis+sentinel://tidegate:of-the-master@127.0.0.1:1,127.0.0.1:{at}/");
    let store = Redis::new(&(url.clone() + "mymaster"), within(Duration::from_secs(10))).unwrap();
    store.operate(&on(&policy, "k"), NOW, 1).await.unwrap(); // one sentinel is enough
    let unknown = error(&(url.clone() + "other")).await;
    assert!(unknown.contains("the sentinels know no master of this name"), "{unknown}");
    let wrong = error(&(url.replace(":of-the-master", ":wrong") + "mymaster")).await;
    assert!(wrong.contains("Password authentication failed"), "{wrong}");
    let no_sentinel = error(&format!("redis+sentinel://127.0.0.1:{port}/mymaster")).await;
    assert!(no_sentinel.contains("unknown command"), "{no_sentinel}");
}
