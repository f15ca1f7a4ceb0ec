//! What a limiter under `on_error = "local"` asks a server in and after an outage: whether the server is back, and then to take what the
//! limiter has granted meanwhile.

use tidegate_gate::{Micros, Verdict};
use tidegate_tier::authority::Failure;
use tidegate_tier::outage::Told;

use super::arguments::Arguments;
use super::call::{is_of_another_type, is_of_server};
use super::slot::slot;

/// The pause between two questions whether a server is back.
const ASK_AGAIN_AFTER: Micros = Micros(50_000);

/// How many operations a server is told at once, so that callers do not wait for many of them.
const MOST_TOLD: usize = 64;

/// The pause after a server has not done what it was told.
const TELL_AGAIN_AFTER: Micros = Micros(1_000_000);

/// The question whether a server is back, which a Cluster sends to the master of a name.
const ASK: &str = "return 1";

/// The outage of a server.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    /// A name that the server did not answer about; `None` if it answers.
    away: Option<String>,
    /// When to ask whether the server is back; `None` while it is asked.
    ask_at: Option<Micros>,
    /// How many operations the server is being told.
    told: usize,
    /// Until when the server is told nothing.
    paused_until: Option<Micros>,
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

    /// When something is due.
    pub(super) fn poll_timeout(&self) -> Option<Micros> {
        [self.ask_at, self.paused_until].into_iter().flatten().min()
    }

    /// Whether something is under way, or to come.
    pub(super) const fn is_busy(&self) -> bool {
        self.away.is_some() || self.told > 0 || self.paused_until.is_some()
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

    /// Whether the server may be told something more.
    pub(super) fn may_tell(&mut self, at: Micros) -> bool {
        self.paused_until.take_if(|until| *until <= at);
        self.away.is_none() && self.paused_until.is_none() && self.told < MOST_TOLD
    }

    /// The server is told an operation.
    pub(super) const fn tell(&mut self) {
        self.told = self.told.saturating_add(1);
    }

    /// Takes the answer to what the server was told.
    pub(super) fn told(&mut self, answer: &Result<Verdict, Failure<String>>, at: Micros) -> Told {
        self.told = self.told.saturating_sub(1);
        let told = match answer {
            Ok(_) | Err(Failure::Transaction(_)) => Told::Done, // or it never can be
            Err(Failure::Store(error)) if is_of_another_type(error) => Told::Done, // it never can be
            Err(Failure::Store(error)) if !is_of_server(error) => Told::Unknown,
            Err(_) => Told::NotDone,
        };
        if told != Told::Done {
            self.paused_until = Some(Micros(at.0.saturating_add(TELL_AGAIN_AFTER.0)));
        }
        told
    }

    /// Ends the questions.
    pub(super) const fn close(&mut self) {
        (self.ask_at, self.paused_until) = (None, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_told_again_after_a_second_unless_it_never_can_do_it() {
        let failed = |error: &str| Err(Failure::Store(error.to_owned()));
        for (error, expected) in [
            ("READONLY You can't write against a read only replica.", Told::NotDone),
            ("Connection is closed.", Told::Unknown),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", Told::Done),
        ] {
            let mut recovery = Recovery::default();
            recovery.tell();
            assert_eq!(recovery.told(&failed(error), Micros(5)), expected, "{error}");
            let is_done = expected == Told::Done;
            assert_eq!(recovery.may_tell(Micros(1_000_004)), is_done, "{error}");
            assert!(recovery.may_tell(Micros(1_000_005)), "{error}");
        }
    }
}
