//! Vectors: operations on the keys of a policy, their times, and the expected answers.
//! `tests/vectors/README.md` describes the files.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tidegate_gate::{
    Ask, AskError, KeyHasher, Limit, Limits, MAX_QUANTITY, Operation, Policies, Policy, Record,
    Request, Resolved, Rule, Table, Timestamp, Verdict, blob,
};

/// A backend that replays vectors.
pub trait Backend {
    /// The fields of an answer that this backend does not have.
    const SILENT: &[&str] = &[];

    /// The answer to a step, in JSON.
    fn answer(&mut self, vectors: &Vectors, step: &Step) -> String;

    /// The stored records of a key, as in [`Vectors::states`]; `None` if the backend does not show them.
    fn states(&mut self, vectors: &Vectors, key: &str) -> Option<Vec<String>>;
}

/// The gate in this process, with a table for each policy.
#[derive(Default)]
pub struct Native(BTreeMap<String, Table>);

impl Backend for Native {
    fn answer(&mut self, vectors: &Vectors, step: &Step) -> String {
        let fresh = || Table::new(1 << 20, KeyHasher::new(1));
        let table = self.0.entry(vectors.name.clone()).or_insert_with(fresh);
        step.answer_by(&vectors.policy, |resolved, operation| {
            table.ask(resolved, step.at(), operation).ok()
        })
    }

    fn states(&mut self, vectors: &Vectors, key: &str) -> Option<Vec<String>> {
        let Ok(resolved) = Resolved::new(&vectors.policy, key) else { return Some(Vec::new()) };
        let Rule::Limited(limits, key) = resolved.rule() else { return Some(Vec::new()) };
        let table = self.0.get(&vectors.name)?;
        let words = table.words(limits, &key).unwrap_or_default().to_vec();
        let words = if words.is_empty() { vec![0; limits.words()] } else { words };
        let records = limits.split(&words);
        Some(
            records
                .map(|(record, words)| hex(&blob::encode(&vectors.policy, record, words)))
                .collect(),
        )
    }
}

/// A file of vectors. The file and its policy have the same name.
pub struct Vectors {
    pub path: PathBuf,
    pub name: String,
    pub policy: Arc<Policy>,
    pub steps: Vec<Step>,
    /// The stored bytes of each record of each key after the last step, in hex.
    pub states: BTreeMap<String, Vec<String>>,
    about: Box<RawValue>,
    policy_text: Box<RawValue>,
}

/// A step of a file of vectors.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    pub at_us: u64,
    pub key: String,
    operation: Box<RawValue>,
    #[serde(default)]
    pub answer: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileForm {
    about: Box<RawValue>,
    policy: Box<RawValue>,
    steps: Vec<Step>,
    #[serde(default)]
    states: BTreeMap<String, Vec<String>>,
}

impl Vectors {
    /// All files, sorted by name.
    pub fn all() -> Vec<Self> {
        let folder = fs::read_dir(crate::file("vectors")).expect("the folder of the vectors");
        let mut paths: Vec<PathBuf> = folder.map(|file| file.expect("a file").path()).collect();
        paths.retain(|path| path.extension().is_some_and(|end| end == "json"));
        paths.sort_unstable();
        paths.into_iter().map(Self::read).collect()
    }

    fn read(path: PathBuf) -> Self {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).expect("a file");
        let form: FileForm =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let policy = Policy::parse(&name, form.policy.get());
        let policy = Arc::new(policy.unwrap_or_else(|error| panic!("{name}: {error}")));
        let late = form.steps.iter().find(|step| step.at_us > MAX_QUANTITY);
        assert!(late.is_none(), "{name}: a time is later than 2^53 - 1");
        let FileForm { about, policy: policy_text, steps, states } = form;
        Self { path, name, policy, steps, states, about, policy_text }
    }

    /// A policy file that has the policies of all files.
    pub fn policy_file(all: &[Self]) -> String {
        let policies: Vec<String> =
            all.iter().map(|one| format!("{:?}: {}", one.name, one.policy_text)).collect();
        let text = format!("{{\"auth\": \"none\", \"policies\": {{{}}}}}", policies.join(", "));
        Policies::parse(&text).expect("policies that are valid together");
        text
    }

    /// The keys of its steps, each once.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let mut keys: Vec<&str> = self.steps.iter().map(|step| step.key.as_str()).collect();
        keys.sort_unstable();
        keys.dedup();
        keys.into_iter()
    }

    /// The text that the file must have: with the answers and states of the gate.
    pub fn generated(&self) -> String {
        let mut gate = Native::default();
        let steps = self.steps.iter().map(|step| {
            let answer = gate.answer(self, step);
            let Step { at_us, key, operation, .. } = step;
            let key = json!(key);
            format!(
                "    {{\"at_us\": {at_us}, \"key\": {key}, \"operation\": {operation},\n     \
                 \"answer\": {answer}}}"
            )
        });
        let steps: Vec<String> = steps.collect();
        let states = self.keys().map(|key| {
            let states = gate.states(self, key).unwrap_or_default();
            format!("    {}: {}", json!(key), json!(states))
        });
        let states: Vec<String> = states.collect();
        let mut text = String::new();
        let _ = write!(
            text,
            "{{\n  \"about\": {},\n  \"policy\": {},\n  \"steps\": [\n{}\n  ],\n  \"states\": {{\n{}\n  }}\n}}\n",
            self.about,
            self.policy_text,
            steps.join(",\n"),
            states.join(",\n")
        );
        text
    }
}

impl Step {
    pub const fn at(&self) -> Timestamp {
        Timestamp(self.at_us)
    }

    /// The name and the fields of the operation.
    pub fn asked(&self) -> (String, Value) {
        let asked: BTreeMap<String, Value> =
            serde_json::from_str(self.operation.get()).expect("an operation");
        asked.into_iter().next().expect("an operation")
    }

    /// The answer in JSON. `decide` does the operation, and returns `None` if its cost can never be granted.
    ///
    /// # Panics
    /// Panics if the gate and `decide` disagree whether the cost can be granted.
    pub fn answer_by(
        &self,
        policy: &Arc<Policy>,
        decide: impl FnOnce(&Resolved, &Operation) -> Option<Verdict>,
    ) -> String {
        let (name, mut fields) = self.asked();
        let by_chance =
            |limit: &Limit| matches!(limit, Limit::Utilization(_) | Limit::Suppression(_));
        let resolved = Resolved::new(policy, &self.key).ok();
        let mut limits = resolved.iter().filter_map(Resolved::limits).flat_map(Limits::iter);
        if name == "check" && limits.any(|each| by_chance(&each.limit)) {
            assert!(
                fields.get("draw").is_some(),
                "{name} of {}: expected a draw, found none",
                policy.name()
            );
        }
        let read = |json: &str| {
            let ask = Ask::parse(json)?;
            ask.resolve(policy, &self.key, &mut || None)
        };
        match read(self.operation.get()) {
            Ok(asked) => {
                let verdict = decide(asked.resolved(), &asked.operation());
                let answer = tidegate_http::operation_json(
                    &asked,
                    verdict.expect("a verdict on what was read"),
                );
                without_policy(policy, &answer)
            }
            Err(problem) => {
                if name == "check" && matches!(problem, AskError::Cost(_)) {
                    // the backend must refuse the cost too
                    let cost = fields["cost"].take().as_u64().expect("a cost");
                    let otherwise = json!({ name: fields }).to_string();
                    let Operation::Decide(request) = read(&otherwise).expect("a check").operation()
                    else {
                        panic!("{otherwise}: a check");
                    };
                    let resolved = resolved.as_ref().expect("a key");
                    let verdict = decide(resolved, &Operation::Decide(Request { cost, ..request }));
                    assert_eq!(verdict, None, "a cost of {cost} can never be granted");
                }
                error(&json!(tidegate_http::problem_type(&problem)))
            }
        }
    }
}

/// The answer to an invalid request: the type of its problem.
pub fn error(problem_type: &Value) -> String {
    format!("{{\"error\":{problem_type}}}")
}

/// An answer in the form of vectors, which have no `policy`.
///
/// # Panics
/// Panics if the answer names another policy.
pub fn without_policy(policy: &Policy, answer: &str) -> String {
    let start = format!("{{\"policy\":{:?},", policy.name());
    format!("{{{}", answer.strip_prefix(&start).expect("an answer about this policy"))
}

/// The stored bytes of each record of a key, in hex. A record that is not stored has the bytes of a fresh one.
pub fn states(resolved: &Resolved, stored: Vec<Option<Vec<u8>>>) -> Vec<String> {
    let records = resolved.limits().into_iter().flat_map(Limits::records).zip(stored);
    let bytes =
        |record, bytes: Option<_>| bytes.unwrap_or_else(|| fresh(resolved.policy(), record));
    records.map(|(record, stored)| hex(&bytes(record, stored))).collect()
}

/// The bytes of a fresh record.
fn fresh(policy: &Policy, record: &Record) -> Vec<u8> {
    blob::encode(policy, record, &vec![0; record.words()])
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}
