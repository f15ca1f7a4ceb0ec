//! The store over TLS: it does what it does without, and each fault has an error that says what is wrong.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tidegate::gate::Policy;
use tidegate::local::RedisServer;
use tidegate::store::{Redis, RedisClientFiles, RedisOptions, RedisTls, StoreError};

use super::certificates::{Authority, Demand, EXPIRED, VALID};
use super::connection::wait;
use super::host::{Host, run};
use super::proxy::Proxy;
use super::{NOW, ask, bucket, grants_in_a_race, on, within};

fn over_tls(url: &str, tls: RedisTls) -> Redis {
    Redis::new(url, RedisOptions { tls, ..within(Duration::from_secs(10)) }).unwrap()
}

/// The error of a store that is refused, at the start and for each operation.
async fn error_of(url: &str, tls: RedisTls) -> String {
    let (store, policy) = (over_tls(url, tls), bucket());
    let started = store.ping().await.unwrap_err();
    let asked = store.operate(&on(&policy, "k"), NOW, 1).await.unwrap_err();
    for error in [&started, &asked] {
        assert!(matches!(error, StoreError::Redis(_)), "no error of a deadline: {error}");
        assert_eq!(undated(error), undated(&started));
    }
    started.to_string()
}

/// An error without its digits, some of which say how long ago a certificate expired.
fn undated(error: &StoreError) -> String {
    error.to_string().replace(|char: char| char.is_ascii_digit(), "")
}

#[track_caller]
fn assert_begins(error: &str, expected: &str) {
    assert!(error.starts_with(expected), "expected {expected}, found {error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_that_race_over_tls_grant_no_more_than_one_would() {
    let authority = Authority::new();
    let own = authority.sign("server", "127.0.0.1", VALID);
    let Some((_server, url)) = authority.redis(&own, Demand::Nothing) else { return };
    let stores = [0; 4].map(|_| over_tls(&url, authority.trusted(None)));
    assert_eq!(grants_in_a_race(stores).await, 40);
}

#[tokio::test]
async fn a_connection_over_tls_that_redis_closed_while_it_was_idle_fails_no_decision() {
    let authority = Authority::new();
    let own = authority.sign("server", "127.0.0.1", VALID);
    let Some((server, url)) = authority.redis(&own, Demand::Nothing) else { return };
    let (store, policy) = (over_tls(&url, authority.trusted(None)), bucket());
    for remaining in (0..5).rev() {
        let decision = store.operate(&on(&policy, "k"), NOW, 1).await.unwrap().decision;
        assert_eq!((decision.is_allowed(), decision.remaining()), (true, remaining));
        let closed: u64 = ask(&server, &[b"CLIENT", b"KILL", b"TYPE", b"normal"]).await;
        assert!(closed >= 1);
        wait(Duration::from_secs(1)).await;
    }
}

#[tokio::test]
async fn a_user_logs_in_over_tls_and_chooses_a_database() {
    let authority = Authority::new();
    let own = authority.sign("server", "127.0.0.1", VALID);
    let Some((server, url)) = authority.redis(&own, Demand::Nothing) else { return };
    let user = [&b"ACL"[..], b"SETUSER", b"u", b"on", b">sec?ret", b"~*", b"+@all"];
    let _: () = ask(&server, &user).await;
    let url = url.replace("://", "://u:sec%3Fret@") + "/2";
    let (store, policy) = (over_tls(&url, authority.trusted(None)), bucket());
    assert!(store.operate(&on(&policy, "k"), NOW, 1).await.unwrap().decision.is_allowed());
    let clients: String = ask(&server, &[b"CLIENT", b"LIST"]).await;
    let is_ours = |line: &str| line.contains(" db=2 ") && line.contains(" user=u ");
    assert!(clients.lines().any(is_ours), "{clients}");
}

#[tokio::test]
async fn a_server_whose_certificate_has_expired_is_refused() {
    let authority = Authority::new();
    let own = authority.sign("server", "127.0.0.1", EXPIRED);
    let Some((_server, url)) = authority.redis(&own, Demand::Nothing) else { return };
    let error = error_of(&url, authority.trusted(None)).await;
    assert_begins(&error, "redis: TLS: the certificate of the server has expired: ");
}

#[tokio::test]
async fn a_server_whose_certificate_has_another_name_is_refused() {
    let authority = Authority::new();
    let own = authority.sign("server", "redis.example.net", VALID);
    let Some((_server, url)) = authority.redis(&own, Demand::Nothing) else { return };
    let error = error_of(&url, authority.trusted(None)).await;
    assert_begins(
        &error,
        "redis: TLS: the certificate of the server has another name than the URL: ",
    );
    assert!(error.contains("redis.example.net"), "{error}");
}

#[tokio::test]
async fn a_server_whose_certificate_another_ca_has_signed_is_refused() {
    let (authority, other) = (Authority::new(), Authority::new());
    let own = authority.sign("server", "127.0.0.1", VALID);
    let Some((_server, url)) = authority.redis(&own, Demand::Nothing) else { return };
    for tls in [other.trusted(None), RedisTls::default()] {
        let error = error_of(&url, tls).await;
        assert_begins(&error, "redis: TLS: no trusted CA has signed the certificate of the server");
    }
}

/// A Redis waits for the end of the line that it takes a handshake for.
#[tokio::test]
async fn a_redis_without_tls_costs_a_deadline_and_the_error_says_what_is_missing() {
    let (authority, server) = (Authority::new(), RedisServer::start().unwrap());
    let proxy = Proxy::start(&server, Duration::ZERO);
    let deadline = Duration::from_secs(1);
    let options = RedisOptions { tls: authority.trusted(None), ..within(deadline) };
    let store = Redis::new(&proxy.url.replace("redis", "rediss"), options).unwrap();
    let policy = bucket();
    let key = on(&policy, "k");
    let expected = format!(
        "redis: TLS: no answer to the handshake within 1s: the server may not speak TLS at this port ({})",
        proxy.url.strip_prefix("redis://").unwrap()
    );
    for _ in 0..3 {
        let [pinged, asked] =
            [store.ping().await.unwrap_err(), store.operate(&key, NOW, 1).await.unwrap_err()];
        for error in [pinged, asked] {
            assert_eq!(error.to_string(), expected);
        }
    }
}

#[tokio::test]
async fn a_server_that_answers_the_handshake_with_something_else_does_not_speak_tls() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("rediss://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        while let Ok((mut client, _)) = listener.accept() {
            let _ = client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n"); // the client may be gone
            let _ = client.read(&mut [0; 16_384]);
        }
    });
    let error = error_of(&url, Authority::new().trusted(None)).await;
    assert_begins(&error, "redis: TLS: the server does not speak TLS at this port: ");
}

#[tokio::test]
async fn a_server_that_demands_a_certificate_gets_it_and_refuses_others() {
    let (authority, other) = (Authority::new(), Authority::new());
    let own = authority.sign("server", "127.0.0.1", VALID);
    let Some((_server, url)) = authority.redis(&own, Demand::Certificate) else { return };
    let client = authority.sign("client", "tidegate", VALID);
    let policy: Arc<Policy> = bucket();
    let store = over_tls(&url, authority.trusted(Some(client)));
    assert!(store.operate(&on(&policy, "k"), NOW, 1).await.unwrap().decision.is_allowed());

    let error = error_of(&url, authority.trusted(None)).await;
    assert_begins(&error, "redis: TLS: the server demands a client certificate: ");
    let foreign = other.sign("client", "tidegate", VALID);
    let error = error_of(&url, authority.trusted(Some(foreign))).await;
    assert_begins(&error, "redis: TLS: the server does not accept the client certificate: ");
    let expired = authority.sign("expired", "tidegate", EXPIRED);
    let error = error_of(&url, authority.trusted(Some(expired))).await;
    assert_begins(&error, "redis: TLS: the server does not accept the client certificate: ");
}

#[test]
fn a_host_starts_on_a_server_with_an_expired_certificate_and_recovers_by_itself() {
    let authority = Authority::new();
    let own = authority.sign("server", "127.0.0.1", EXPIRED);
    let Some((mut server, url)) = authority.redis(&own, Demand::Nothing) else { return };
    let ca = authority.file("ca.pem");
    // the deadline is long, because the log names the certificate only if the handshake ends in time
    let arguments = ["--redis-ca", ca.to_str().unwrap(), "--redis-deadline", "10000"];
    let host = Host::start(&[&["--redis", &url], &arguments[..]].concat());
    let warning = "redis: TLS: the certificate of the server has expired";
    assert!(host.log().contains(warning), "{}", host.log());
    host.on_error_decides();
    authority.sign("server", "127.0.0.1", VALID);
    server.restart().unwrap();
    host.decides_soon();
}

/// The files of the system's CAs are those that `SSL_CERT_FILE` names, for rustls-native-certs as for OpenSSL.
#[test]
fn the_cas_of_the_system_are_trusted_unless_one_is_named() {
    let (authority, other) = (Authority::new(), Authority::new());
    let own = authority.sign("server", "127.0.0.1", VALID);
    let Some((_server, url)) = authority.redis(&own, Demand::Nothing) else { return };
    let (ca, other) = (authority.file("ca.pem"), other.file("ca.pem"));
    let check = ["check", "--policy", "closed", "--key", "k", "--redis", &url];
    let named = [&check[..], &["--redis-ca", ca.to_str().unwrap()]].concat();
    let misnamed = [&check[..], &["--redis-ca", other.to_str().unwrap()]].concat();
    for (arguments, system, code) in [
        (&check[..], &ca, 0),
        (&check, &other, 2),
        (&named, &other, 0),
        (&named, &own.key, 0),
        (&misnamed, &ca, 2),
    ] {
        let (found, written) = run(arguments, &[("SSL_CERT_FILE", system)]);
        assert_eq!(found, code, "{arguments:?}: {written}");
    }
    let (code, written) = run(&check, &[("SSL_CERT_FILE", &own.key)]);
    assert!(
        code == 2 && written.contains("expected certificates of CAs in this system"),
        "{written}"
    );
}

#[test]
fn a_file_that_cannot_be_used_ends_the_command_at_the_start() {
    let authority = Authority::new();
    let one = authority.sign("one", "tidegate", VALID);
    let two = authority.sign("two", "tidegate", VALID);
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let none = text(&authority.file("none.pem"));
    let garbled = authority.file("garbled.pem");
    let secret = fs::read_to_string(&one.key).unwrap().lines().nth(1).unwrap().to_owned();
    fs::write(&garbled, format!("-----BEGIN {secret}\n-----BEGIN CERTIFICATE-----\n!\n")).unwrap();
    let RedisClientFiles { certificate, key } = &one;
    let no_certificate =
        "expected PEM, which begins with `-----BEGIN CERTIFICATE-----`, found no certificate";
    for (files, message) in [
        (vec!["--redis-ca", &none], format!("CA {none:?}: cannot be read: No such file")),
        (vec!["--redis-ca", &text(key)], format!("CA {key:?}: {no_certificate}")),
        (vec!["--redis-ca", &text(&garbled)], format!("CA {garbled:?}: {no_certificate}")),
        (
            vec!["--redis-cert", &text(key), "--redis-key", &text(key)],
            format!("client certificate {key:?}: {no_certificate}"),
        ),
        (
            vec!["--redis-cert", &text(certificate), "--redis-key", &text(certificate)],
            format!("client key {certificate:?}: expected PEM without a password"),
        ),
        (
            vec!["--redis-cert", &text(certificate), "--redis-key", &text(&two.key)],
            format!(
                "client key {:?}: expected the key of the certificate {certificate:?}",
                two.key
            ),
        ),
        (vec!["--redis-cert", &text(certificate)], "--redis-key <FILE>".to_owned()),
        (vec!["--redis-key", &text(key)], "--redis-cert <FILE>".to_owned()),
    ] {
        // port 1 has no server: a command that accepted the files would say so, or listen
        let redis = ["--redis", "rediss://user:hunter2@127.0.0.1:1"];
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let listen = taken.local_addr().unwrap().to_string();
        for command in
            [&["check", "--policy", "closed", "--key", "k"][..], &["serve", "--listen", &listen]]
        {
            let (code, written) = run(&[command, &redis, &files].concat(), &[]);
            assert!(code == 2 && written.contains(&message), "{files:?}: {written}");
            assert!(!written.contains("hunter2") && !written.contains(&secret), "{written}");
        }
    }
}

#[test]
fn files_for_tls_are_refused_where_they_would_be_ignored() {
    let authority = Authority::new();
    let ca = authority.file("ca.pem");
    let named = ["--redis-ca", ca.to_str().unwrap()];
    let check = ["check", "--policy", "closed", "--key", "k"];
    let plain = ["--redis", "redis://127.0.0.1:1"];
    let (code, written) = run(&[&check[..], &plain, &named].concat(), &[]);
    assert!(code == 2 && written.contains("expected `rediss://HOST:PORT`, because"), "{written}");
    let (code, written) = run(&[&check[..], &named].concat(), &[]);
    assert!(code == 2 && written.contains("--redis <URL>"), "{written}");
}

#[test]
fn a_host_reads_the_files_of_its_redis_from_the_environment() {
    let missing = Authority::new().file("missing.pem");
    // a host that ignored the files would end, too, because its address is taken
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let serve = ["serve", "--listen", &listen, "--redis", "rediss://127.0.0.1:1"];
    let (code, written) = run(&serve, &[("TIDEGATE_REDIS_CA", &missing)]);
    assert!(code == 2 && written.contains("cannot be read"), "{written}");
    let client = [("TIDEGATE_REDIS_CERT", &*missing), ("TIDEGATE_REDIS_KEY", &missing)];
    let (code, written) = run(&serve, &client);
    assert!(code == 2 && written.contains("client certificate"), "{written}");
    let (code, written) = run(&serve, &client[..1]);
    assert!(code == 2 && written.contains("--redis-key <FILE>"), "{written}");
}
