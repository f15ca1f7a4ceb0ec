//! Announces the host to the others every few seconds, and reads how many do so: in a sorted set, by the clock of Redis.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::{Cmd, FromRedisValue, RedisError, Value, from_redis_value};
use tidegate_tier::outage::Fleet;

use super::presence::ID;
use super::shared::{Shared, is_of_another_type};
use super::swap::unreadable;
use crate::store::error::StoreError;

/// The name of the sorted set, behind the prefix of the store: the hosts by the time in ms at which they were last there.
const NAME: &str = "tidegate:hosts";

/// Announces the host from now on, until the store is dropped or the runtime ends.
pub(super) fn announce(shared: &Arc<Shared>) {
    if shared.presence.is_announced.swap(true, Ordering::Relaxed) {
        return;
    }
    let announced = Announced(Arc::downgrade(shared));
    tokio::spawn(async move {
        while let Some(shared) = announced.0.upgrade() {
            shared.presence.handle_count(count(&shared).await);
            drop(shared);
            tokio::time::sleep(Duration::from_micros(Fleet::EVERY.0)).await;
        }
    });
}

/// A host that announces itself. If the runtime ends before the store, the next operation starts another task.
struct Announced(Weak<Shared>);

impl Drop for Announced {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.presence.is_announced.store(false, Ordering::Relaxed);
        }
    }
}

/// Announces the host once, and returns how many have done so lately.
async fn count(shared: &Shared) -> Result<u64, StoreError> {
    let (name, id) = (format!("{}{NAME}", shared.options.prefix), *ID);
    let slot = shared.servers.slot(&name);
    let time = shared.servers.send(&[(slot, &redis::cmd("TIME"))]).await;
    let (seconds, us): (u64, u64) = last_of(time)?;
    let now_ms = seconds.saturating_mul(1_000).saturating_add(us / 1_000);
    let life_ms = Fleet::LIFE.0 / 1_000;
    let commands = [
        Cmd::zadd(&name, format!("{id:016x}"), now_ms),
        Cmd::zrembyscore(&name, "-inf", now_ms.saturating_sub(life_ms)),
        Cmd::pexpire(&name, i64::try_from(2 * life_ms).unwrap_or(i64::MAX)),
        Cmd::zcard(&name),
    ];
    let sent = commands.each_ref().map(|command| (slot, command));
    last_of(shared.servers.send(&sent).await).map_err(|error| match error {
        StoreError::Redis(error) if is_of_another_type(&error) => {
            unreadable(&[name.as_bytes()], "a sorted set", error)
        }
        error => error,
    })
}

/// The last answer, if there is no error among them.
fn last_of<T: FromRedisValue>(answers: Vec<Result<Value, StoreError>>) -> Result<T, StoreError> {
    let mut last = Value::Nil;
    for answer in answers {
        last = answer?.extract_error()?;
    }
    Ok(from_redis_value(last).map_err(RedisError::from)?)
}
