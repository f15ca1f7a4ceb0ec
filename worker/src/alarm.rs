//! The alarm of an object, by which it deletes the states that have expired.

use std::cell::Cell;
use std::rc::Rc;

use js_sys::Promise;
use js_sys::futures::future_to_promise;
use tidegate_gate::Timestamp;
use wasm_bindgen::JsValue;
use worker::{Delay, SqlStorageValue, State, Storage};

use crate::clock::{AFTER_RESPONSE, timestamp};
use crate::log::log_error;

/// When an object looks for states that have expired.
#[derive(Debug)]
pub(crate) struct Alarm {
    /// How many milliseconds after a write.
    after_ms: i64,
    is_set: Rc<Cell<bool>>,
    has_written: bool,
    /// Whether the table was made since an alarm was last set or deleted, so that there is none.
    is_missing: bool,
}

impl Alarm {
    pub(crate) fn new(after_ms: u64) -> Self {
        let after_ms = i64::try_from(after_ms).unwrap_or(i64::MAX);
        Self { after_ms, is_set: Rc::default(), has_written: false, is_missing: false }
    }

    /// Takes note of a write, and whether it made the table.
    pub(crate) const fn has_written(&mut self, is_new: bool) {
        self.has_written = true;
        self.is_missing |= is_new;
    }

    /// Sets the alarm if there is something to delete and no alarm: after the response has left, so that no answer waits
    /// for it.
    pub(crate) fn set_after_write(&mut self, object: &State) {
        if !self.has_written || self.is_set.replace(true) {
            return;
        }
        let (storage, is_set, after_ms) =
            (object.storage(), Rc::clone(&self.is_set), self.after_ms);
        let is_missing = std::mem::take(&mut self.is_missing);
        object.wait_until(async move {
            Delay::from(AFTER_RESPONSE).await;
            let set = match is_missing {
                true => storage.set_alarm(after_ms).await,
                false => set_if_missing(&storage, after_ms).await,
            };
            if let Err(error) = set {
                is_set.set(false); // the next write tries again
                log_error(
                    "the alarm could not be set, so expired states stay for now",
                    &error.into(),
                );
            }
        });
    }

    /// Sets the alarm to the time at which the next row expires, but not earlier than after a write. If no row is left,
    /// deletes the database, because even an empty one is billed.
    pub(crate) fn set_next(
        &mut self,
        object: &State,
        next: Option<Timestamp>,
        now: Timestamp,
    ) -> Promise {
        self.is_set.set(next.is_some());
        self.has_written &= next.is_some();
        let (storage, after_ms) = (object.storage(), self.after_ms);
        future_to_promise(async move {
            match next {
                None => storage.delete_all().await?,
                Some(next) => {
                    let wait_ms = i64::try_from(next.saturating_since(now).0 / 1_000);
                    storage.set_alarm(after_ms.max(wait_ms.unwrap_or(i64::MAX))).await?;
                }
            }
            Ok(JsValue::UNDEFINED)
        })
    }
}

async fn set_if_missing(storage: &Storage, after_ms: i64) -> worker::Result<()> {
    match storage.get_alarm().await? {
        Some(_) => Ok(()),
        None => storage.set_alarm(after_ms).await,
    }
}

/// The states that have expired.
pub(crate) struct Expired {
    /// Whether there were any.
    pub(crate) any: bool,
    /// When the next one expires; `None` if none is left.
    pub(crate) next: Option<Timestamp>,
}

impl Expired {
    /// Deletes the rows that have expired.
    pub(crate) fn delete(object: &State, now_ms: f64) -> worker::Result<Self> {
        let sql = object.storage().sql();
        let deleted = sql.exec("DELETE FROM states WHERE expires_ms <= ?", vec![now_ms.into()])?;
        let rows =
            sql.exec("SELECT MIN(expires_ms) FROM states", None)?.raw().next().transpose()?;
        let next = match rows.as_deref() {
            Some([SqlStorageValue::Integer(next_ms)]) => Some(u64::try_from(*next_ms).unwrap_or(0)),
            Some([SqlStorageValue::Float(next_ms)]) => Some(timestamp(*next_ms).0 / 1_000),
            _ => None,
        };
        let next = next.map(|next_ms| Timestamp(next_ms.saturating_mul(1_000)));
        Ok(Self { any: deleted.rows_written() > 0, next })
    }
}
