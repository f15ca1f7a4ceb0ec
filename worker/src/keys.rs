//! The Durable Object, which stores the slices of the keys that belong to it.
//!
//! A session decides. The writes that an answer depends on are stored before the response leaves: the output
//! gate holds the response until the write is durable. So an object that is evicted or restarted never
//! grants twice. A write on which no answer depends is only kept in memory: when the object starts again,
//! its own clock is past the newest time of that write. The alarm deletes expired slices.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::iter;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidegate_gate::http::VerdictForm;
use tidegate_gate::{
    Due, Micros, Operation, Policy, Resolved, Session, SessionError, Timestamp, Write,
};
use worker::{
    Date, DurableObject, Env, Request, Response, Result, SqlStorageValue, State, console_error,
    durable_object,
};

use crate::policies::policies;

/// A request of the Worker to an object.
#[derive(Serialize, Deserialize)]
pub(crate) struct Ask {
    pub(crate) policy: String,
    pub(crate) questions: Vec<Question>,
}

/// One check. The Worker has validated its key and its operation.
#[derive(Serialize, Deserialize)]
pub(crate) struct Question {
    pub(crate) key: String,
    /// The operation, as [`Operation::to_words`] writes it.
    pub(crate) operation: Vec<u64>,
    /// The time to decide at instead of the object's own. The Worker only sends it in a test environment.
    pub(crate) now_us: Option<u64>,
}

/// The answer to a question, or why the object could not decide.
pub(crate) type Asked = std::result::Result<VerdictForm, String>;

/// How many bytes of slices an object caches. When the cache is full it is cleared, and slices are read from
/// storage again. An isolate has 128 MB for all of its objects.
const MAX_CACHED_BYTES: usize = 8 << 20;
/// The memory that a cached slice takes beside its name and its bytes.
const SLICE_BYTES: usize = 128;

/// The states of the keys that belong to one object.
#[durable_object(alarm)]
pub struct Keys {
    state: State,
    cache: RefCell<Cache>,
    table_made: Cell<bool>,
    alarm_set: Cell<bool>,
}

/// The bytes of each slice by its name, as storage has them or will have them once an answer depends on them;
/// `None` for a slice that is not stored.
#[derive(Default)]
struct Cache {
    slices: HashMap<String, Option<Vec<u8>>>,
    bytes: usize,
}

impl Cache {
    fn insert(&mut self, name: String, bytes: Option<Vec<u8>>) {
        let added = name.len() + bytes.as_ref().map_or(0, Vec::len) + SLICE_BYTES;
        self.bytes = self.bytes.saturating_add(added); // a replaced slice counts with its replacement
        if self.bytes > MAX_CACHED_BYTES {
            self.clear();
            self.bytes = added;
        }
        self.slices.insert(name, bytes);
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

impl DurableObject for Keys {
    fn new(state: State, _env: Env) -> Self {
        Self {
            state,
            cache: RefCell::default(),
            table_made: Cell::new(false),
            alarm_set: Cell::new(false),
        }
    }

    async fn fetch(&self, mut request: Request) -> Result<Response> {
        // parsed from text, because JavaScript's numbers would round the words of an operation
        let ask: Ask = serde_json::from_str(&request.text().await?)?;
        let clock = Timestamp(Date::now().as_millis().saturating_mul(1_000)); // one time for all questions
        let policy = policies().and_then(|policies| {
            policies.get(&ask.policy).ok_or_else(|| format!("no policy {:?}", ask.policy))
        });
        let mut idle_after: Option<Micros> = None;
        let mut answers: Vec<Asked> = Vec::with_capacity(ask.questions.len());
        for question in &ask.questions {
            let now = question.now_us.map_or(clock, Timestamp);
            let decided = policy.clone().and_then(|policy| self.decide(policy, question, now));
            answers.push(decided.map(|(verdict, written)| {
                // a given time does not tell when this object's own clock reaches the expiry
                if question.now_us.is_none() {
                    idle_after = idle_after.max(written);
                }
                verdict
            }));
        }
        if let Some(idle_after) = idle_after
            && let Err(error) = self.set_alarm(idle_after).await
        {
            // the decisions stand, and the next write tries again
            console_error!("the alarm could not be set, so expired states stay for now: {error}");
        }
        Response::from_json(&answers)
    }

    async fn alarm(&self) -> Result<Response> {
        self.alarm_set.set(false);
        self.make_table()?;
        let now = millis(Date::now().as_millis());
        let sql = self.state.storage().sql();
        sql.exec("DELETE FROM states WHERE expires_ms <= ?", Some(vec![now.into()]))?;
        let next = sql.exec("SELECT MIN(expires_ms) FROM states", None)?;
        match next.raw().next().transpose()?.as_deref() {
            Some([SqlStorageValue::Integer(at)]) => {
                let wait = u64::try_from(at.saturating_sub(now)).unwrap_or(0);
                self.set_alarm(Micros(wait.saturating_mul(1_000))).await?;
            }
            Some([SqlStorageValue::Float(at)]) => {
                return Err(format!("`expires_ms`: expected a whole number, found {at}").into());
            }
            _ => {
                self.table_made.set(false);
                self.state.storage().delete_all().await?; // even an empty database is billed
            }
        }
        self.cache.borrow_mut().clear();
        Response::empty()
    }
}

impl Keys {
    /// The verdict, and how long the rows that were written are needed; `None` if nothing was written.
    fn decide(
        &self,
        policy: &Arc<Policy>,
        question: &Question,
        now: Timestamp,
    ) -> std::result::Result<(VerdictForm, Option<Micros>), String> {
        let operation = Operation::from_words(&question.operation).ok_or("unknown operation")?;
        let resolved = Resolved::new(policy, &question.key).map_err(|error| error.to_string())?;
        let mut session = Session::default();
        let seat = session.join(&resolved);
        let found: std::result::Result<Vec<_>, String> =
            session.names().map(|name| self.read(name)).collect();
        session.load(found?);
        let answered = session.operate(&seat, now, &operation).map_err(|error| match error {
            SessionError::Blob { error, .. } => error.to_string(), // callers learn no names
            error => error.to_string(),
        })?;
        // a given time may be ahead of the object's clock, so its write cannot wait
        let must = |write: &Write<'_>| write.due == Due::BeforeAnswer || question.now_us.is_some();
        let (written, kept): (Vec<_>, Vec<_>) = session.writes().partition(must);
        if let Err(error) = self.write(&written, now) {
            self.cache.borrow_mut().clear(); // the cache must not be ahead of storage
            return Err(error.to_string());
        }
        let idle_after = written.iter().map(|write| write.time_to_live).max();
        let mut cache = self.cache.borrow_mut();
        for Write { name, bytes, .. } in written.into_iter().chain(kept) {
            cache.insert(name.to_owned(), Some(bytes.to_owned()));
        }
        Ok((VerdictForm::from(&answered.verdict), idle_after))
    }

    fn read(&self, name: &str) -> std::result::Result<Option<Vec<u8>>, String> {
        if let Some(known) = self.cache.borrow().slices.get(name) {
            return Ok(known.clone());
        }
        let rows = || -> Result<Option<Vec<SqlStorageValue>>> {
            let sql = self.state.storage().sql();
            if !self.table_made.get() {
                // an object that is only looked at stores nothing, not even an empty table
                let tables = "SELECT 1 FROM sqlite_master WHERE name = 'states'";
                if sql.exec(tables, None)?.raw().next().transpose()?.is_none() {
                    return Ok(None);
                }
                self.table_made.set(true);
            }
            let cursor =
                sql.exec("SELECT blob FROM states WHERE name = ?", Some(vec![name.into()]))?;
            cursor.raw().next().transpose()
        };
        let found = match rows().map_err(|error| error.to_string())?.as_deref() {
            None => None,
            Some([SqlStorageValue::Blob(bytes)]) => Some(bytes.clone()),
            Some(_) => return Err("stored state: expected a blob, found another type".into()),
        };
        self.cache.borrow_mut().insert(name.to_owned(), found.clone());
        Ok(found)
    }

    /// Writes in one statement, so either all slices of a decision are stored or none of them.
    fn write(&self, writes: &[Write<'_>], now: Timestamp) -> Result<()> {
        if writes.is_empty() {
            return Ok(());
        }
        self.make_table()?;
        let rows: Vec<&str> = iter::repeat_n("(?, ?, ?)", writes.len()).collect();
        let statement = format!(
            "INSERT OR REPLACE INTO states (name, blob, expires_ms) VALUES {}",
            rows.join(", ")
        );
        let values = writes.iter().flat_map(|write| {
            let expires = now.saturating_add(write.time_to_live).0.div_ceil(1_000);
            let bytes = SqlStorageValue::Blob(write.bytes.to_owned());
            [write.name.into(), bytes, millis(expires).into()]
        });
        self.state.storage().sql().exec(&statement, Some(values.collect()))?;
        Ok(())
    }

    fn make_table(&self) -> Result<()> {
        if !self.table_made.get() {
            self.state.storage().sql().exec(
                "CREATE TABLE IF NOT EXISTS states \
                 (name TEXT PRIMARY KEY, blob BLOB NOT NULL, expires_ms INTEGER NOT NULL) \
                 WITHOUT ROWID",
                None,
            )?;
            self.table_made.set(true);
        }
        Ok(())
    }

    /// Sets the alarm unless one is set, because setting it is billed as a row written.
    async fn set_alarm(&self, after: Micros) -> Result<()> {
        if self.alarm_set.get() {
            return Ok(());
        }
        if self.state.storage().get_alarm().await?.is_none() {
            // at least 1 ms ahead: an alarm set to now in the alarm handler may be lost (workerd#6866)
            let offset = millis(after.as_millis_ceil().max(1));
            self.state.storage().set_alarm(offset).await?;
        }
        self.alarm_set.set(true);
        Ok(())
    }
}

/// Milliseconds in the type of SQLite and of alarms.
fn millis(millis: u64) -> i64 {
    i64::try_from(millis).unwrap_or(i64::MAX)
}
