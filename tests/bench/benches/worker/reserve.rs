//! A cost that is known later, beside one that is known at once: a reservation and its commit beside a check of the same policy.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::load::{CONNECTIONS, Connection, post};

/// The pairs of a reservation and its commit a second, on so many keys.
pub(crate) async fn pairs(url: &str, keys: u64, section: Duration) -> Result<f64> {
    let address = url.strip_prefix("http://").context("http")?.to_owned();
    let (began, mut callers) = (Instant::now(), JoinSet::new());
    for caller in 0..CONNECTIONS {
        let address = address.clone();
        callers.spawn(async move {
            let mut connection = Connection::open(&address).await?;
            let (mut key, mut count) = (caller, 0_u64);
            while began.elapsed() < section {
                key = (key + CONNECTIONS) % keys;
                pair(&mut connection, &address, key).await?;
                count += 1;
            }
            anyhow::Ok(count)
        });
    }
    let mut count = 0;
    while let Some(caller) = callers.join_next().await {
        count += caller??;
    }
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

async fn pair(connection: &mut Connection, address: &str, key: u64) -> Result<()> {
    let of = format!(r#""policy":"reserving","key":"user:{key}""#);
    let body = format!("{{{of},\"cost\":2}}");
    let reserved = connection.ask(&post(address, "/v1/reservations", &body)).await?;
    let (_, body) = reserved.split_once("\r\n\r\n").context("a body")?;
    let answer: Value = serde_json::from_str(body)?;
    ensure!(answer["allowed"] == true, "there are plenty, found {answer}");
    let id = answer["id"].as_str().context("an id")?;
    let (path, body) = (format!("/v1/reservations/{id}/commit"), format!("{{{of},\"actual\":1}}"));
    let committed = connection.ask(&post(address, &path, &body)).await?;
    ensure!(committed.contains("\"charged\":1"), "expected a commit, found {committed}");
    Ok(())
}
