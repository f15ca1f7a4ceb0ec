//! What a limiter under `on_error = "local"` asks a server in an outage: whether the server is back.

use std::cell::RefCell;

use tidegate_gate::Micros;
use tidegate_tier::Outage;

use super::arguments::Arguments;
use super::slot::slot;

/// The pause between two questions whether a server is back.
const ASK_AGAIN_AFTER: Micros = Micros(50_000);

/// The question whether a server is back, which a Cluster sends to the master of a name.
const ASK: &str = "return 1";

thread_local! {
    /// The shares of this process, which is one node however many limiters it has.
    static SHARES: RefCell<Outage> = const { RefCell::new(Outage::new(Outage::MOST_BYTES)) };
}

/// Lends the shares of this process.
pub(super) fn shares(to: &mut dyn FnMut(&mut Outage)) {
    SHARES.with_borrow_mut(|shares| to(shares));
}

/// The outage of a server.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    /// A name that the server did not answer about; `None` if it answers.
    away: Option<String>,
    /// When to ask whether the server is back; `None` while it is asked.
    ask_at: Option<Micros>,
}

impl Recovery {
    /// The question whether the server is back, if it is due, and the slot of a Cluster that it is about.
    pub(super) fn poll(&mut self, at: Micros) -> Option<(u16, Arguments)> {
        self.ask_at.take_if(|due| *due <= at)?;
        let name = self.away.as_deref()?.as_bytes();
        let mut command = Arguments::of_script("EVAL", ASK, 1);
        command.push(name);
        Some((slot(name), command))
    }

    /// When the question is due.
    pub(super) const fn poll_timeout(&self) -> Option<Micros> {
        self.ask_at
    }

    /// Whether the server is away.
    pub(super) const fn is_busy(&self) -> bool {
        self.away.is_some()
    }

    /// Asks from now on whether the server is back, which did not answer about this name.
    pub(super) fn await_back(&mut self, name: String, at: Micros) {
        if self.away.is_none() {
            (self.away, self.ask_at) = (Some(name), Some(at));
        }
    }

    /// Takes what came of asking.
    pub(super) fn asked(&mut self, is_back: bool, at: Micros) {
        if is_back {
            self.away = None;
        } else {
            self.ask_at = Some(Micros(at.0.saturating_add(ASK_AGAIN_AFTER.0)));
        }
    }

    /// Ends the questions.
    pub(super) const fn close(&mut self) {
        self.ask_at = None;
    }
}
