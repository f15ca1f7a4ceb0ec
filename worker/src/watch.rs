//! When an isolate asks for the revision of the policies in force.

use tidegate_gate::Micros;
use tidegate_http::RevisionTag;

/// When an isolate has asked for the revision in force.
pub(crate) struct Watch {
    /// The revision of which it has heard last. Its file may be wrong, and is then not in force.
    pub(crate) heard: RevisionTag,
    /// How long it goes by that revision.
    delay: Micros,
    /// When it asked and got an answer, or none.
    pub(crate) asked: Option<Micros>,
    /// When it last asked beside a request.
    begun: Option<Micros>,
}

/// Whether the revision in force is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refresh {
    /// It was asked for a moment ago.
    No,
    /// The request goes on meanwhile.
    Meanwhile,
    /// The request waits for it.
    First,
}

impl Watch {
    pub(crate) const fn new(heard: RevisionTag, delay: Micros) -> Self {
        Self { heard, delay, asked: None, begun: None }
    }

    /// Under load no request waits, because the isolate asks half the delay earlier.
    pub(crate) fn due(&mut self, at: Micros) -> Refresh {
        let has_passed = |since: Option<Micros>, span: u64| {
            since.is_none_or(|since| at.0.saturating_sub(since.0) >= span)
        };
        let Micros(delay) = self.delay;
        if has_passed(self.asked, delay) {
            return Refresh::First;
        }
        if has_passed(self.asked, delay / 2) && has_passed(self.begun, delay / 2) {
            self.begun = Some(at);
            return Refresh::Meanwhile;
        }
        Refresh::No
    }
}
