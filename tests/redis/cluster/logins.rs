//! A Cluster over TLS, and one that asks for a password.

use std::fs;
use std::time::Duration;

use tidegate::local::RedisServer;
use tidegate::store::{Redis, RedisOptions, StoreError};
use tidegate_tests::file;

use super::super::certificates::{Authority, Demand, VALID};
use super::super::load::holds;
use super::super::{NOW, ask, bucket, on, within};
use crate::on_each_server::users::{documented, set_user};

/// One master with all slots is a Cluster.
async fn give_all_slots(server: &RedisServer) {
    let slots: Vec<String> = (0..16_384).map(|slot: u16| slot.to_string()).collect();
    let slots = slots.iter().map(String::as_bytes);
    let command: Vec<&[u8]> = [&b"CLUSTER"[..], b"ADDSLOTS"].into_iter().chain(slots).collect();
    let _: () = ask(server, &command).await;
    holds(async || {
        let told: String = ask(server, &[b"CLUSTER", b"INFO"]).await;
        told.contains("cluster_state:ok")
    })
    .await;
}

/// The rights of a user in a Cluster, as docs/operations.md has them.
pub fn in_a_cluster() -> Vec<String> {
    let mut rights = documented();
    let page = fs::read_to_string(file("../docs/operations.md")).unwrap();
    let line = page.lines().find(|line| line.starts_with("- A Cluster also needs ")).unwrap();
    let more = line.split('`').filter(|word| word.starts_with('+')).map(str::to_owned);
    rights.extend(more);
    assert_eq!(rights.len(), documented().len() + 2, "{line}");
    rights
}

async fn grants(url: &str, options: RedisOptions) -> Result<usize, StoreError> {
    let (store, policy) = (Redis::new(url, options).unwrap(), bucket());
    store.ping().await?;
    let mut granted = 0;
    for _ in 0..7 {
        let verdict = store.operate(&on(&policy, "k"), NOW, 1).await?;
        granted += usize::from(verdict.decision.is_allowed());
    }
    Ok(granted)
}

#[tokio::test]
async fn a_cluster_over_tls_with_a_user_decides() {
    let authority = Authority::new();
    let own = authority.sign("server", "127.0.0.1", VALID);
    let cluster = ["--cluster-enabled", "yes", "--tls-cluster", "yes", "--tls-replication", "yes"];
    let Some((server, url)) = authority.redis_with(&own, Demand::Nothing, &cluster) else { return };
    give_all_slots(&server).await;
    set_user(&server, &in_a_cluster()).await;
    let url = url.replace("rediss://", "rediss+cluster://tidegate:secret@");
    let options =
        || RedisOptions { tls: authority.trusted(None), ..within(Duration::from_secs(10)) };
    assert_eq!(grants(&url, options()).await.unwrap(), 5);

    set_user(&server, &documented()).await;
    let error = grants(&url, options()).await.unwrap_err().to_string();
    assert!(error.contains("cluster"), "{error}");
    let wrong = url.replace("secret", "wrong");
    let error = grants(&wrong, options()).await.unwrap_err().to_string();
    assert!(error.contains("Password authentication failed"), "{error}");
    let untrusted = within(Duration::from_secs(10));
    let error = grants(&url, untrusted).await.unwrap_err().to_string();
    assert!(error.contains("no trusted CA"), "{error}");
}
