//! The Durable Object: decides for the keys that belong to it.
//!
//! An [`Authority`] decides, of which the object is the only writer. What an answer depends on is stored before the
//! response leaves: the output gate holds the response until the write is durable. So an object that is
//! evicted or restarted never grants twice.

use tidegate_gate::{Micros, Timestamp};
use tidegate_tier::authority::{Authority, Options, Outcome, Slice, Swap};
use tidegate_tier::wire::{AuthorityOptions, Place, Replies};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsError, JsValue};

use crate::clock::{Clock, from_millis, timestamp};
use crate::policies::policies;

/// How many bytes of states an object remembers. An isolate has 128 MB for all of its objects.
const REMEMBERED: usize = 8 << 20;

/// How many bytes of questions and replies an object remembers.
const REPLIES: usize = 1 << 20;

/// How much longer an object keeps states if callers give the times: a replay may take this long.
const KEEP_LONGER: Micros = Micros(86_400_000_000);

#[wasm_bindgen]
extern "C" {
    /// The rows of an object: a name, bytes, and when they are of no more use.
    #[derive(Debug)]
    pub type Rows;

    /// The bytes under a name.
    #[wasm_bindgen(method, catch)]
    fn read(this: &Rows, name: &str) -> Result<Option<Vec<u8>>, JsValue>;

    /// Adds a row to the next write. Without a time, the row keeps its time.
    #[wasm_bindgen(method)]
    fn add(this: &Rows, name: &str, bytes: &[u8], expires_ms: Option<f64>);

    #[wasm_bindgen(js_namespace = console)]
    fn error(text: &str, reason: &JsValue);

    /// Writes all rows that were added, or none.
    #[wasm_bindgen(method, catch)]
    fn write(this: &Rows) -> Result<(), JsValue>;
}

/// What JavaScript calls in an object.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Owner {
    rows: Rows,
    authority: Authority<Place, &'static str>,
    replies: Replies<()>,
    clock: Clock,
    /// Whether operations are decided at the times that callers give. Only a test environment may do that.
    trusts_caller_time: bool,
}

#[wasm_bindgen]
impl Owner {
    /// An object that has read nothing yet.
    #[wasm_bindgen(constructor)]
    #[must_use]
    pub fn new(rows: Rows, trusts_caller_time: bool) -> Self {
        let options = Options {
            remembered: REMEMBERED,
            // usually one clock decides and lets states expire
            keep_longer: if trusts_caller_time { KEEP_LONGER } else { Micros::ZERO },
            // a given time may be ahead of the object's clock, so a refusal must be stored too
            is_only_writer: !trusts_caller_time,
            ..Options::default()
        };
        let replies = AuthorityOptions {
            bytes: REPLIES,
            keeps_order: false, // each question is of another request
            ..AuthorityOptions::default()
        };
        Self {
            rows,
            authority: Authority::new(options),
            replies: Replies::new(replies),
            clock: Clock::default(),
            trusts_caller_time,
        }
    }

    /// Answers a question. All that the reply depends on is written.
    ///
    /// # Errors
    /// Throws an `Error` if the bytes are no question or if the policy file is wrong.
    pub fn ask(&mut self, question: &[u8], now_ms: f64) -> Result<Vec<u8>, JsError> {
        let policies = policies().map_err(|reason| JsError::new(&reason))?;
        let now = timestamp(now_ms);
        let at = self.clock.at(now);
        let Self { authority, replies, .. } = self;
        replies
            .handle_question(((), question), policies, (now, at), authority)
            .map_err(|((), error)| JsError::new(&error.to_string()))?;
        self.decide((now, at));
        match self.replies.poll_reply(at, &mut self.authority) {
            Some(((), reply)) => Ok(reply.to_vec()),
            None => Err(JsError::new("the question has no reply")),
        }
    }

    fn decide(&mut self, (now, at): (Timestamp, Micros)) {
        let clock = (!self.trusts_caller_time).then_some(now);
        while let Some(swap) = self.authority.poll_swap((clock, at), |_| false) {
            let outcomes = match self.swap(&swap, now) {
                Ok(outcomes) => outcomes,
                Err(reason) => {
                    error("storage", &reason);
                    vec![Outcome::Failed("its storage failed"); swap.len()]
                }
            };
            self.authority.handle(swap, outcomes, (clock, at));
        }
    }

    /// Reads what the authority does not know, and writes what it has decided.
    fn swap(&mut self, swap: &Swap, now: Timestamp) -> Result<Vec<Outcome<&'static str>>, JsValue> {
        let mut outcomes = Vec::with_capacity(swap.len());
        let mut writes = false;
        for home in 0..swap.len() {
            if self.authority.slices(swap, home).any(|slice| !slice.is_known) {
                let read = |slice: Slice<'_>| match slice.is_known {
                    true => Ok(slice.found.map(<[u8]>::to_vec)),
                    false => self.rows.read(slice.name),
                };
                let found = self.authority.slices(swap, home).map(read);
                outcomes.push(Outcome::Found(found.collect::<Result<_, _>>()?));
                continue;
            }
            for slice in self.authority.slices(swap, home) {
                let Some(bytes) = slice.becomes else { continue };
                let expires = slice.keep.map(|keep| now.saturating_add(keep));
                let expires = expires.map(|expires| from_millis(expires.0.div_ceil(1_000)));
                self.rows.add(slice.name, bytes, expires);
                writes = true;
            }
            outcomes.push(Outcome::Swapped);
        }
        if writes {
            self.rows.write()?;
        }
        Ok(outcomes)
    }
}
