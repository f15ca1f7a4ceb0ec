//! A naive reporter of a suppression: remembers every request and counts all of them for each
//! answer.

const PART: i128 = 6_000_000;
const PERIOD: i128 = 4 * PART;
const REPORT_EVERY: i128 = 2_000_000;

/// The answer to a request. The wait is in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants are those of the verdict")]
pub enum Answer {
    Admitted,
    Suppressed { factor: u64 },
    Capped { retry_after: u64 },
}

#[derive(Clone, Copy, Debug)]
struct Request {
    part: i128,
    units: i128,
    admitted: bool,
    reported: bool,
}

/// A naive reporter of one account.
#[derive(Clone, Debug)]
pub struct Oracle {
    /// The most units that are admitted in a part.
    most: Option<i128>,
    newest: i128,
    requests: Vec<Request>,
    reported_at: Option<i128>,
    applied: Option<(i128, u64)>,
}

impl Oracle {
    /// Makes the reporter of an account never seen. It admits at most `most` units in a part.
    #[must_use]
    pub fn new(most: Option<u64>) -> Self {
        let most = most.map(i128::from);
        Self { most, newest: 0, requests: Vec::new(), reported_at: None, applied: None }
    }

    /// Decides on a request. Returns `None` if the request can never pass. A request of 0 units
    /// changes nothing.
    pub fn decide(&mut self, now: u64, units: u64, draw: u32) -> Option<Answer> {
        if self.most.is_some_and(|most| i128::from(units) > most) {
            return None;
        }
        if units == 0 {
            return Some(self.clone().count(now, 0, draw));
        }
        Some(self.count(now, units, draw))
    }

    /// Takes the reports to send, as (offered at, admitted, suppressed): those of the current part
    /// and of the newest part before it.
    pub fn take_reports(&mut self, now: u64) -> [Option<(u64, u64, u64)>; 2] {
        self.clock(now);
        let current = self.part();
        let waits = self.reported_at.is_some_and(|at| self.newest < at + REPORT_EVERY);
        let unreported = |request: &&Request| !request.reported && request.part > current - 4;
        let before = |request: &Request| (request.part < current).then_some(request.part);
        let previous = self.requests.iter().filter(unreported).filter_map(before).max();
        let report = |part: i128| {
            let of = |admitted: bool| -> i128 {
                let counted = |request: &&Request| {
                    !request.reported && request.part == part && request.admitted == admitted
                };
                self.requests.iter().filter(counted).map(|request| request.units).sum()
            };
            let (admitted, suppressed) = (of(true), of(false));
            let report = (u(part.max(0) * PART), u(admitted), u(suppressed));
            (admitted + suppressed > 0).then_some(report)
        };
        let reports = [report(current), previous.and_then(report)];
        if waits || reports == [None; 2] {
            return [None; 2];
        }
        for request in &mut self.requests {
            request.reported = true;
        }
        self.reported_at = Some(self.newest);
        reports
    }

    /// Applies the master's reply.
    pub fn apply(&mut self, now: u64, factor: u64) {
        self.clock(now);
        self.applied = Some((self.newest, factor));
    }

    /// The newest time seen.
    #[must_use]
    pub fn newest(&self) -> u64 {
        u(self.newest)
    }

    fn count(&mut self, now: u64, units: u64, draw: u32) -> Answer {
        self.clock(now);
        let part = self.part();
        let units = i128::from(units);
        let here = |request: &&Request| request.part == part && request.admitted;
        let admitted: i128 = self.requests.iter().filter(here).map(|request| request.units).sum();
        let factor = match self.applied {
            Some((at, factor)) if self.newest < at + PERIOD => factor,
            _ => 0,
        };
        let answer = if self.most.is_some_and(|most| admitted + units > most) {
            Answer::Capped { retry_after: u((part + 1) * PART - self.newest) }
        } else if u64::from(draw) < factor {
            Answer::Suppressed { factor }
        } else {
            Answer::Admitted
        };
        let admitted = answer == Answer::Admitted;
        self.requests.push(Request { part, units, admitted, reported: false });
        answer
    }

    fn clock(&mut self, now: u64) {
        let now = i128::from(now);
        if now < self.newest - PERIOD {
            let back = self.newest - now;
            let parts = self.part() - now.div_euclid(PART);
            for request in &mut self.requests {
                request.part -= parts;
            }
            self.reported_at = self.reported_at.map(|at| at - back);
            self.applied = self.applied.map(|(at, factor)| (at - back, factor));
            self.newest = now;
        }
        self.newest = self.newest.max(now);
    }

    fn part(&self) -> i128 {
        self.newest.div_euclid(PART)
    }
}

fn u(n: i128) -> u64 {
    u64::try_from(n).unwrap_or_default()
}
