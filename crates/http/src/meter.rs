//! The true cost of a request, read from its answer while the answer passes.
//!
//! A [`Meter`] takes the head of the answer and then its bytes, in pieces of any size, and keeps none of them. Beside what the policy
//! file says it takes less than 1 KB, however long the answer is. Whatever the bytes are, it does not fail.

mod events;
mod seek;
#[cfg(test)]
mod tests;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use tidegate_gate::{CountIf, IfUnknown, MAX_QUANTITY, Metering, TermSource};

use crate::answer::problem::invalid_request;
use crate::head::{BodyError, Head, MAX_BODY_BYTES};
use crate::response::Response;
use events::Events;
use seek::Seeker;

/// The status of an answer that the gateway gives if the upstream gives none.
const BAD_GATEWAY: u16 = 502;

/// What is known of the true cost of one request.
///
/// Call [`answered`](Self::answered) with the head of the answer, [`push`](Self::push) with the bytes of its body if the meter
/// [reads](Self::reads) it, and at the end [`finish`](Self::finish).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meter {
    metering: Arc<Metering>,
    estimate: u64,
    actual: Option<Seeker>,
    body: Body,
    bytes: u64,
    counts: bool,
}

/// How the body of the answer is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    /// Not at all.
    Unread,
    /// Its bytes are counted.
    Counted,
    Json,
    /// A value on each line.
    Lines,
    Events(Events),
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerEnd {
    /// It came whole.
    Whole,
    /// It broke off, or the client left.
    CutOff,
    /// There was none, and the client gets the status 502.
    Failed,
}

impl Meter {
    /// Begins with a request that has reserved these units.
    #[must_use]
    pub fn new(metering: &Arc<Metering>, estimate: u64) -> Self {
        let actual = metering.actual().map(Seeker::new);
        let metering = Arc::clone(metering);
        Self { metering, estimate, actual, body: Body::Unread, bytes: 0, counts: true }
    }

    /// The units that the request has reserved.
    #[must_use]
    pub const fn estimate(&self) -> u64 {
        self.estimate
    }

    /// Whether it reads bodies that are not coded, or counts their bytes.
    #[must_use]
    pub fn seeks(&self) -> bool {
        self.actual.as_ref().is_some_and(|actual| actual.seeks() || actual.counts_bytes())
    }

    /// Takes the head of the answer. `header` returns the value of a header by its name in lower case, and no
    /// `content-encoding` if the body comes without it.
    #[inline(never)]
    pub fn answered(&mut self, status: u16, header: &dyn Fn(&str) -> Option<String>) {
        let counts = |count_if: &CountIf| count_if.includes(status, header);
        self.counts = self.metering.count_if().is_none_or(counts);
        let Some(actual) = self.actual.as_mut().filter(|_| self.counts) else { return };
        actual.set(|source| match source {
            TermSource::Header(name) => whole(&header(name)?),
            _ => None,
        });
        let is_plain = |coding: String| coding.eq_ignore_ascii_case("identity");
        let is_plain = header("content-encoding").is_none_or(is_plain);
        let kind = header("content-type").unwrap_or_default().to_ascii_lowercase();
        self.body = match kind.split(';').next().unwrap_or_default().trim() {
            "text/event-stream" if is_plain && actual.seeks() => Body::Events(Events::START),
            kind if is_plain && actual.seeks() && kind.ends_with("ndjson") => Body::Lines,
            // also `application/problem+json`
            kind if is_plain && actual.seeks() && kind.ends_with("json") => Body::Json,
            _ if actual.counts_bytes() => Body::Counted,
            _ => Body::Unread,
        };
    }

    /// Whether the cost depends on the body of the answer.
    #[must_use]
    pub const fn reads(&self) -> bool {
        !matches!(self.body, Body::Unread)
    }

    /// Takes the next bytes of the body.
    pub fn push(&mut self, bytes: &[u8]) {
        let Some(actual) = &mut self.actual else { return };
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.bytes = self.bytes.saturating_add(length);
        match &mut self.body {
            Body::Unread | Body::Counted => {}
            Body::Json => actual.push(bytes),
            Body::Lines => bytes.iter().for_each(|byte| match byte {
                b'\n' => actual.restart(), // whatever the line has opened
                byte => actual.take(*byte),
            }),
            Body::Events(events) => events.push(bytes, actual),
        }
    }

    /// The units to commit.
    #[must_use]
    #[inline(never)]
    pub fn finish(mut self, end: AnswerEnd) -> u64 {
        if end == AnswerEnd::Failed {
            self.answered(BAD_GATEWAY, &|_| None);
        }
        let breaks_off = match self.body {
            Body::Unread => false, // then nothing is missing but what is not known
            Body::Events(events) if events.is_done => false,
            // a server without `Content-Length` ends its answer as if it broke off
            _ => end == AnswerEnd::CutOff || self.actual.as_ref().is_some_and(Seeker::is_open),
        };
        let Self { metering, estimate, actual, bytes, counts, .. } = self;
        let Some(mut actual) = actual.filter(|_| counts) else {
            return if counts { estimate } else { 0 };
        };
        actual.count(bytes);
        let seen = actual.summed();
        match metering.if_unknown() {
            IfUnknown::Estimate if !seen.is_whole || breaks_off => seen.units.max(estimate),
            _ => seen.units,
        }
    }
}

/// What a request will cost, by its head and then by its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Estimate {
    seeker: Seeker,
    /// Whether it depends on a copy of the body, or why no server can read it.
    reads: Result<bool, BodyError>,
}

impl Estimate {
    /// The estimate of a request with this head; `None` if it is the cost of the request.
    pub(crate) fn of(metering: &Metering, head: &Head<'_>) -> Option<Self> {
        let mut seeker = Seeker::new(metering.estimate()?);
        let header = |name: &str| whole(&(head.header)(name)?);
        let is_chunked = (head.header)("transfer-encoding").is_some();
        let length = header("content-length").filter(|_| !is_chunked);
        seeker.set(|source| match source {
            TermSource::Header(name) => header(name),
            TermSource::Bytes(_) => length,
            _ => None,
        });
        let most = u64::try_from(MAX_BODY_BYTES).unwrap_or(u64::MAX);
        let too_long = length.filter(|length| *length > most);
        let reads = match (seeker.seeks(), seeker.counts_bytes()) {
            (false, false) => Ok(false),
            _ if head.is_coded() => Err(BodyError::Coded),
            (false, true) => Ok(length.is_none()),
            (true, _) => match too_long {
                Some(length) => {
                    Err(BodyError::TooLarge(usize::try_from(length).unwrap_or(usize::MAX)))
                }
                None => Ok(true),
            },
        };
        Some(Self { seeker, reads })
    }

    /// Whether it depends on a copy of the body.
    ///
    /// # Errors
    /// Returns the response to a request whose body cannot be read, because its client could choose the cost so.
    pub(crate) fn reads(&self) -> Result<bool, Response> {
        self.reads.map_err(BodyError::response)
    }

    /// Takes the whole body, or the reason why it is not known.
    ///
    /// # Errors
    /// Returns the response to a request whose body some servers read differently, or nobody.
    pub(crate) fn read(&mut self, body: Result<Vec<u8>, BodyError>) -> Result<(), Response> {
        let body = body.map_err(BodyError::response)?;
        if body.len() > MAX_BODY_BYTES {
            return Err(BodyError::TooLarge(body.len()).response());
        }
        self.seeker.push(&body);
        self.seeker.count(u64::try_from(body.len()).unwrap_or(u64::MAX));
        // UTF-16 and UTF-32 begin with one of these, and Python reads them
        let is_utf_16 = body.iter().take(2).any(|byte| [0, 0xFE, 0xFF].contains(byte));
        if self.seeker.seeks() && (self.seeker.is_odd || is_utf_16) {
            return Err(invalid_request(ODD.into()));
        }
        Ok(())
    }

    /// The units to reserve: at least one, because a request that reserves nothing could not be charged later.
    pub(crate) fn units(&self) -> u64 {
        self.seeker.summed().units.max(1)
    }
}

const ODD: &str = "the body: expected JSON in UTF-8 whose fields that the cost depends on are whole numbers, not negative and \
     without point or exponent; found something else";

/// A whole number of a header field.
fn whole(text: &str) -> Option<u64> {
    let digits = text.trim();
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX).min(MAX_QUANTITY))
}
