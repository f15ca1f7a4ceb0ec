//! The guest in wasmtime, in the same host code as replays. It answers without a time.

use tidegate::gate::{OperationError, Resolved, TransactionError};
use tidegate::replay;
use tidegate_tests::vectors::{Backend, Step, Vectors, states};

pub struct Guest(replay::Guest);

impl Guest {
    pub fn start() -> Self {
        Self(replay::Guest::start().unwrap())
    }
}

impl Backend for Guest {
    const SILENT: &[&str] = &["at_us"];

    fn answer(&mut self, vectors: &Vectors, step: &Step) -> String {
        step.answer_by(&vectors.policy, |resolved, operation| {
            match self.0.operate(resolved, step.at(), operation) {
                Ok(verdict) => Some(verdict),
                Err(error) => match error.downcast_ref() {
                    Some(TransactionError::Operation(OperationError::Cost(_))) => None,
                    _ => panic!("{}: {error}", vectors.name),
                },
            }
        })
    }

    fn states(&mut self, vectors: &Vectors, key: &str) -> Option<Vec<String>> {
        let Ok(resolved) = Resolved::new(&vectors.policy, key) else { return Some(Vec::new()) };
        Some(states(&resolved, self.0.blobs(&resolved)))
    }
}
