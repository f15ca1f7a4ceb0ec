//! The way of an operation to the driver.

use std::sync::{Arc, Mutex, PoisonError};

use tidegate_gate::{Operation, Resolved, Timestamp};
use tokio::sync::{mpsc, oneshot};

use super::driver::{Answer, Driver, Question};
use super::shared::Shared;

/// Gives operations to the driver.
pub(super) struct Queue {
    pub(super) shared: Arc<Shared>,
    /// Where the driver takes operations from; `None` until the first one.
    driver: Mutex<Option<mpsc::UnboundedSender<Question>>>,
}

impl Queue {
    pub(super) const fn new(shared: Arc<Shared>) -> Self {
        Self { shared, driver: Mutex::new(None) }
    }

    pub(super) fn begin(
        &self,
        resolved: &Resolved,
        now: Timestamp,
        operation: Operation,
    ) -> oneshot::Receiver<Answer> {
        let (token, answer) = oneshot::channel();
        self.send(Question { resolved: resolved.clone(), now, operation, token });
        answer
    }

    /// Gives an operation to the driver. Starts the driver if it does not run, or if its runtime has ended.
    fn send(&self, question: Question) {
        let mut driver = self.driver.lock().unwrap_or_else(PoisonError::into_inner);
        let unsent = match &*driver {
            Some(sender) => match sender.send(question) {
                Ok(()) => return,
                Err(unsent) => unsent.0,
            },
            None => question,
        };
        let (sender, taken) = mpsc::unbounded_channel();
        let _ = sender.send(unsent); // the receiver is here
        *driver = Some(sender);
        tokio::spawn(Driver::new(Arc::clone(&self.shared)).run(taken));
    }
}
