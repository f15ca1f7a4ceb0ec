//! What a limiter under `on_error = "local"` asks Redis beside its states: how many nodes there are, and in an outage whether Redis is
//! back, to be told then what the limiter has granted meanwhile.

use tidegate_gate::{Micros, Verdict};
use tidegate_tier::authority::Failure;
use tidegate_tier::outage::{Fleet, Told};

use super::call::is_of_server;
use super::flight::{Announcement, Flight};

/// The pause between two questions whether Redis is back.
const ASK_AGAIN_AFTER: Micros = Micros(50_000);

/// How many operations Redis is told at once, so that callers do not wait for many of them.
const MOST_TOLD: usize = 64;

/// The pause after Redis has not done what it was told.
const TELL_AGAIN_AFTER: Micros = Micros(1_000_000);

/// The nodes, and the outage.
#[derive(Debug)]
pub(super) struct Recovery {
    /// The name of this node among the others.
    id: u64,
    fleet: Fleet,
    /// When to announce the node; `None` while it is done, or if the policy needs no number of nodes.
    announce_at: Option<Micros>,
    /// Redis is known not to answer.
    is_away: bool,
    /// When to ask whether Redis is back; `None` while it is asked.
    ping_at: Option<Micros>,
    /// How many operations Redis is being told.
    told: usize,
    /// Until when Redis is told nothing.
    paused_until: Option<Micros>,
    /// Why Redis was last away.
    cause: String,
}

impl Recovery {
    pub(super) fn new(id: u64, is_for_policy: bool) -> Self {
        Self {
            id,
            fleet: Fleet::default(),
            announce_at: is_for_policy.then_some(Micros::ZERO),
            is_away: false,
            ping_at: None,
            told: 0,
            paused_until: None,
            cause: String::from("the operation failed"),
        }
    }

    /// The next call that is due.
    pub(super) fn poll(&mut self, prefix: &str, at: Micros) -> Option<Flight> {
        let is_due = |due: &mut Micros| *due <= at;
        if self.announce_at.take_if(is_due).is_some() {
            return Some(Flight::Announcement(Announcement::new(prefix, self.id)));
        }
        self.ping_at.take_if(is_due).map(|_| Flight::ping())
    }

    /// When the next call is due.
    pub(super) fn poll_timeout(&self) -> Option<Micros> {
        [self.announce_at, self.ping_at, self.paused_until].into_iter().flatten().min()
    }

    /// An announcement has ended. Without a count the last one holds.
    pub(super) fn announced(&mut self, count: Option<u64>, at: Micros) {
        count.into_iter().for_each(|count| self.fleet.handle_count(count, at));
        self.announce_at = Some(Micros(at.0.saturating_add(Fleet::EVERY.0)));
    }

    /// How many nodes there are.
    pub(super) fn nodes(&self) -> Option<u64> {
        self.fleet.nodes()
    }

    /// Asks from now on whether Redis is back.
    pub(super) fn await_back(&mut self, at: Micros) {
        if !self.is_away {
            self.is_away = true;
            self.ping_at = Some(at);
        }
    }

    /// Takes note why Redis is away.
    pub(super) fn failed(&mut self, cause: &str) {
        cause.clone_into(&mut self.cause);
    }

    /// Why Redis was last away.
    pub(super) fn cause(&self) -> &str {
        &self.cause
    }

    /// Takes what came of asking whether Redis is back.
    pub(super) fn pinged(&mut self, is_back: bool, at: Micros) {
        self.is_away = !is_back;
        self.ping_at = (!is_back).then_some(Micros(at.0.saturating_add(ASK_AGAIN_AFTER.0)));
    }

    /// Whether Redis may be told something more.
    pub(super) fn may_tell(&mut self, at: Micros) -> bool {
        self.paused_until.take_if(|until| *until <= at);
        !self.is_away && self.paused_until.is_none() && self.told < MOST_TOLD
    }

    /// Redis is told an operation.
    pub(super) const fn tell(&mut self) {
        self.told = self.told.saturating_add(1);
    }

    /// Takes the answer to what Redis was told.
    pub(super) fn told(&mut self, answer: &Result<Verdict, Failure<String>>, at: Micros) -> Told {
        self.told = self.told.saturating_sub(1);
        let told = match answer {
            Ok(_) | Err(Failure::Transaction(_)) => Told::Done, // or it never can be
            Err(Failure::Store(error)) if !is_of_server(error) => Told::Unknown,
            Err(_) => Told::NotDone,
        };
        if told != Told::Done {
            self.paused_until = Some(Micros(at.0.saturating_add(TELL_AGAIN_AFTER.0)));
        }
        told
    }

    /// Ends the announcements and the questions.
    pub(super) const fn close(&mut self) {
        (self.announce_at, self.ping_at, self.paused_until) = (None, None, None);
    }
}
