//! The limiter of `tidegate/durable-objects`: `tidegate_wasm` reads its operations and words their answers; this carries its questions.

use tidegate_gate::Micros;
use tidegate_wasm::Authority;
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsError, JsValue};
use worker::Env;

use crate::call;
use crate::clock::whole;
use crate::policies;
use crate::variables::trusts_caller_time;

/// The functions that JavaScript calls to carry what a limiter asks. Times are in µs, by a clock that never goes back.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Objects;

#[wasm_bindgen]
impl Objects {
    /// The hash of the policy of a limiter, for [`transmit`](Self::transmit).
    #[must_use]
    pub fn hash(limiter: &Authority) -> String {
        policies::hash_of(limiter.policy())
    }

    /// The policy of a limiter, for an object that does not know its hash.
    #[must_use]
    pub fn policy(limiter: &Authority) -> String {
        limiter.policy().to_owned()
    }

    /// The calls that are due, in fields: how many, and of each the name of the object, the numbers of the questions, for
    /// [`reply`](Self::reply), and what to send.
    #[must_use]
    pub fn transmit(limiter: &mut Authority, hash: &str, at: f64) -> String {
        let prefix = limiter.prefix().to_owned();
        call::transmit(limiter.outbox(), &prefix, |_| hash.to_owned(), Micros(whole(at)))
    }

    /// Takes the reply of an object to the questions with these numbers. No reply, or one that cannot be read, leaves their
    /// outcomes unknown. `cause` is the error of a call that failed.
    pub fn reply(
        limiter: &mut Authority,
        numbers: &str,
        reply: Option<String>,
        cause: &JsValue,
        at: f64,
    ) {
        let reply = reply.unwrap_or_default();
        call::reply(limiter.outbox(), numbers, &reply, cause, Micros(whole(at)));
    }

    /// Gives up the questions that have waited for longer than the deadline of the limiter.
    #[wasm_bindgen(js_name = giveUp)]
    pub fn give_up(limiter: &mut Authority, at: f64) {
        limiter.outbox().handle_timeout(Micros(whole(at)));
    }

    /// The token of an operation whose caller must send the next question, because no other request can send it.
    #[must_use]
    pub fn next(limiter: &mut Authority) -> Option<usize> {
        limiter.outbox().first_ready().copied().flatten()
    }

    /// Whether operations are decided at the times that callers give. Only a test environment may do that.
    #[wasm_bindgen(js_name = trustsCallerTime)]
    #[must_use]
    pub fn trusts_caller_time(env: &Env) -> bool {
        trusts_caller_time(env)
    }

    /// Tells the objects of this isolate about a policy.
    ///
    /// # Errors
    /// Throws an `Error` if the policy is wrong.
    pub fn learn(policy: &str) -> Result<(), JsError> {
        let wrong = |wrong: String| JsError::new(&format!("the policy of a question: {wrong}"));
        policies::learn(policy).map_err(wrong)
    }
}
