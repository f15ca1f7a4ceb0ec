//! What is asked about the Worker itself: who is limited, and the status of the isolate that the call meets.

use tidegate_gate::Timestamp;
use tidegate_http::{KeysAs, Limited, Status, Watched};
use wasm_bindgen::JsValue;

use crate::in_force::InForce;
use crate::lists;
use crate::log::log_error;
use crate::node::Node;
use crate::policies::Revision;

impl Node {
    /// What to hand over, and its number.
    pub(crate) fn hand_over(&mut self) -> Option<(u64, String)> {
        self.handover.next(&mut self.in_force.limited.borrow_mut())
    }

    /// Whether the isolate hands over what it counts: with its question for the policies, if it must ask for them.
    pub(crate) fn hands_over(&self) -> bool {
        self.in_force.access.lets_policies_change()
    }

    /// Answers a call about the Worker. `lists` are those of all isolates; `None` if this isolate hands nothing over.
    pub(crate) fn watched(
        &mut self,
        exchange: u32,
        (what, clear): (Watched, bool),
        lists: Option<Result<Option<String>, JsValue>>,
        now: Timestamp,
    ) {
        let Some(running) = self.exchanges.get(exchange) else { return };
        let in_force = &running.in_force;
        let mut own = in_force.limited.borrow_mut();
        let mut keys = Some(if clear { KeysAs::Clear } else { KeysAs::Hashes(&self.log_secret) });
        let mut all = None;
        if let Some(lists) = lists {
            match lists.map(|lists| lists.and_then(|lists| lists::read(&lists))) {
                Ok(Some(lists)) => {
                    let all = all.insert(own.among(lists, now));
                    all.keep(&in_force.revision.policies);
                }
                unread => {
                    keys = None;
                    log_error("who is limited is not known", &unread.err().unwrap_or_default());
                }
            }
        }
        let told = in_force.told(all.as_mut().unwrap_or(&mut own), what, now, keys);
        drop(own);
        running.exchange.watched(told);
    }
}

impl InForce {
    fn told(
        &self,
        limited: &mut Limited,
        what: Watched,
        now: Timestamp,
        keys: Option<KeysAs<'_>>,
    ) -> Result<String, String> {
        match (what, keys) {
            (Watched::Top, Some(keys)) => Ok(limited.top(now, keys)),
            (Watched::Top, None) => {
                Err("the object that adds up the lists did not answer".to_owned())
            }
            (Watched::Status, keys) => {
                let Revision { policies, tag, .. } = &*self.revision;
                let (metrics, local) = (&self.metrics, &self.answers.all());
                let status = Status { policies, revision: tag, metrics, store: "object", local };
                Ok(limited.status(now, &status, keys))
            }
        }
    }
}
