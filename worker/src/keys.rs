//! The Durable Object: the states of the keys that belong to it.
//!
//! A decision is made in memory and a grant is written before its response leaves (the output gate
//! holds the response until the write is durable), so an object that is evicted or restarted never
//! grants twice. A refusal writes nothing if all that it leaves in memory is the newest time seen:
//! the object's own clock will be past that. The alarm deletes what has expired.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use tidegate_gate::http::VerdictForm;
use tidegate_gate::{Limits, Micros, Operation, Part, Policy, Rule, Timestamp, Verdict, blob};
use worker::{
    Date, DurableObject, Env, Request, Response, Result, SqlStorageValue, State, console_error,
    durable_object,
};

use crate::policies::policies;

/// What the Worker asks of an object.
#[derive(Serialize, Deserialize)]
pub(crate) struct Ask {
    pub(crate) policy: String,
    pub(crate) questions: Vec<Question>,
}

/// One check; its key and what is asked have been validated.
#[derive(Serialize, Deserialize)]
pub(crate) struct Question {
    pub(crate) key: String,
    /// [`Operation::to_words`]
    pub(crate) operation: Vec<u64>,
    /// Instead of the object's own time. The Worker passes it on in a test environment alone.
    pub(crate) now_us: Option<u64>,
}

/// The answer to a question, or why there is none.
pub(crate) type Asked = std::result::Result<VerdictForm, String>;

/// States held in memory beside storage; past so many all are read anew.
const MAX_CACHED: usize = 10_000;

/// The states of the keys that belong to one object.
#[durable_object(alarm)]
pub struct Keys {
    state: State,
    words: RefCell<HashMap<String, Vec<u64>>>,
    table_made: Cell<bool>,
    alarm_set: Cell<bool>,
}

impl DurableObject for Keys {
    fn new(state: State, _env: Env) -> Self {
        Self {
            state,
            words: RefCell::default(),
            table_made: Cell::new(false),
            alarm_set: Cell::new(false),
        }
    }

    async fn fetch(&self, mut request: Request) -> Result<Response> {
        // as text: JavaScript's own numbers would round an operation's words
        let ask: Ask = serde_json::from_str(&request.text().await?)?;
        let clock = Timestamp(Date::now().as_millis().saturating_mul(1_000)); // one for the event
        let policy = policies().and_then(|policies| {
            policies.get(&ask.policy).ok_or_else(|| format!("no policy {:?}", ask.policy))
        });
        let mut idle_after: Option<Micros> = None;
        let mut answers: Vec<Asked> = Vec::with_capacity(ask.questions.len());
        for question in &ask.questions {
            let now = question.now_us.map_or(clock, Timestamp);
            let decided = policy.clone().and_then(|policy| self.decide(policy, question, now));
            answers.push(decided.map(|(verdict, written)| {
                // a given time says nothing about when this object's own clock gets there
                if question.now_us.is_none() {
                    idle_after = idle_after.max(written);
                }
                verdict
            }));
        }
        if let Some(idle_after) = idle_after
            && let Err(error) = self.set_alarm(idle_after).await
        {
            // the decisions stand; the next grant tries again
            console_error!("no alarm, expired states stay until there is one: {error}");
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
                return Err(format!("expires_ms: found {at}, which is no whole number").into());
            }
            _ => {
                self.table_made.set(false);
                self.state.storage().delete_all().await?; // an empty database still costs
            }
        }
        self.words.borrow_mut().clear();
        Response::empty()
    }
}

impl Keys {
    /// The verdict, and after a write for how long its rows are needed.
    fn decide(
        &self,
        policy: &Policy,
        question: &Question,
        now: Timestamp,
    ) -> std::result::Result<(VerdictForm, Option<Micros>), String> {
        let operation = Operation::from_words(&question.operation).ok_or("no such operation")?;
        let (limits, key) = match policy.rule(&question.key) {
            Rule::Listed(decision) => {
                return Ok((VerdictForm::from(&Verdict::listed(now, decision)), None));
            }
            Rule::Limited(limits, key) => (limits, key),
        };
        let name = |part: &Part| blob::name(policy, part, &key);
        let mut words = self.gather(policy, limits, &name)?;
        let before = words.clone();
        let verdict =
            limits.operate(&mut words, now, &operation).map_err(|error| error.to_string())?;
        let changed = !operation.is_peek();
        let grant = verdict.decision.is_allowed() && changed;
        let mut idle_after = None;
        let mut cache = self.words.borrow_mut();
        for ((part, words), (_, before)) in limits.split(&words).zip(limits.split(&before)) {
            let name = name(part);
            let time_to_live = part.time_to_live(words, now);
            // a refusal that a limit remembers must survive a restart like a grant, and so must one
            // from which on a bucket fills that starts empty, or a time that is not the object's own
            let remembered = part.limits().iter().any(|each| each.limit.remembers_refusals());
            let begins = before.iter().all(|word| *word == 0) && time_to_live > Micros::ZERO;
            if grant || (changed && (remembered || begins || question.now_us.is_some())) {
                let written =
                    self.write(&name, &blob::encode(policy, part, words), now, time_to_live);
                if let Err(error) = written {
                    cache.clear(); // memory must not be ahead of what is stored
                    return Err(error.to_string());
                }
                idle_after = idle_after.max(Some(time_to_live));
            }
            cache.insert(name, words.into());
        }
        Ok((VerdictForm::from(&verdict), idle_after))
    }

    /// The words of all parts.
    fn gather(
        &self,
        policy: &Policy,
        limits: &Limits,
        name: &dyn Fn(&Part) -> String,
    ) -> std::result::Result<Vec<u64>, String> {
        let mut cache = self.words.borrow_mut();
        if cache.len() >= MAX_CACHED {
            cache.clear();
        }
        let mut words = Vec::with_capacity(limits.words());
        for part in limits.parts() {
            let name = name(part);
            match cache.get(&name) {
                Some(own) => words.extend_from_slice(own),
                None => words.extend(self.read(policy, part, &name)?),
            }
        }
        Ok(words)
    }

    fn read(
        &self,
        policy: &Policy,
        part: &Part,
        name: &str,
    ) -> std::result::Result<Vec<u64>, String> {
        let rows = || -> Result<Option<Vec<SqlStorageValue>>> {
            self.make_table()?;
            let sql = self.state.storage().sql();
            let cursor =
                sql.exec("SELECT blob FROM states WHERE name = ?", Some(vec![name.into()]))?;
            cursor.raw().next().transpose()
        };
        match rows().map_err(|error| error.to_string())?.as_deref() {
            None => Ok(vec![0; part.words()]),
            Some([SqlStorageValue::Blob(bytes)]) => {
                blob::decode(policy, part, bytes).map_err(|error| error.to_string())
            }
            Some(_) => Err("stored state: it is no blob".into()),
        }
    }

    fn write(&self, name: &str, bytes: &[u8], now: Timestamp, idle_after: Micros) -> Result<()> {
        self.make_table()?;
        let expires = millis(now.saturating_add(idle_after).0.div_ceil(1_000));
        self.state.storage().sql().exec(
            "INSERT OR REPLACE INTO states (name, blob, expires_ms) VALUES (?, ?, ?)",
            Some(vec![name.into(), SqlStorageValue::Blob(bytes.to_vec()), expires.into()]),
        )?;
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

    /// One alarm at a time: setting it is billed as a row written.
    async fn set_alarm(&self, after: Micros) -> Result<()> {
        if self.alarm_set.get() {
            return Ok(());
        }
        if self.state.storage().get_alarm().await?.is_none() {
            // at least 1 ms ahead: one set to now within the handler may be lost (workerd#6866)
            let offset = millis(after.as_millis_ceil().max(1));
            self.state.storage().set_alarm(offset).await?;
        }
        self.alarm_set.set(true);
        Ok(())
    }
}

/// Milliseconds as SQLite and alarms take them.
fn millis(millis: u64) -> i64 {
    i64::try_from(millis).unwrap_or(i64::MAX)
}
