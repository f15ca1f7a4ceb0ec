//! An isolate answers requests by the policies and rights that are in force. They stand here, with what is counted under them.

use std::cell::RefCell;
use std::rc::Rc;

use tidegate_http::{Access, Limited, Metrics};
use tidegate_tier::cache::Counts;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::policies::Revision;

/// The policies, rights and counters by which requests are answered.
pub(crate) struct InForce {
    pub(crate) revision: Rc<Revision>,
    pub(crate) access: Access,
    pub(crate) metrics: Metrics,
    pub(crate) answers: Rc<Counts>,
    /// What this isolate has refused, and has not handed over.
    pub(crate) limited: Rc<RefCell<Limited>>,
    pub(crate) telemetry: Telemetry,
}

/// What the Worker emits about its decisions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Telemetry {
    /// Whether there is a binding for events.
    pub(crate) events: bool,
    /// Whether answers have `Server-Timing`.
    pub(crate) timing: bool,
}

impl InForce {
    pub(crate) fn new(revision: Rc<Revision>, access: Access, telemetry: Telemetry) -> Rc<Self> {
        let metrics = Metrics::new(&revision.policies, None);
        let (answers, limited) = (Rc::default(), Rc::default());
        Rc::new(Self { revision, access, metrics, answers, limited, telemetry })
    }

    /// The same with another revision. What was counted goes on.
    pub(crate) fn with(&self, revision: Rc<Revision>) -> Rc<Self> {
        let access = self.access.under(&revision.policies);
        let metrics = Metrics::new(&revision.policies, Some(&self.metrics));
        self.limited.borrow_mut().keep(&revision.policies);
        let (answers, limited) = (Rc::clone(&self.answers), Rc::clone(&self.limited));
        Rc::new(Self { revision, access, metrics, answers, limited, telemetry: self.telemetry })
    }

    /// Says what each request needs.
    pub(crate) fn say(&self, needs: &Needs) {
        let policies = &self.revision.policies;
        needs.set_refresh(self.access.lets_policies_change());
        needs.set_country(policies.reads_country());
        needs.set_body(policies.gateway().routes().is_empty());
    }
}

#[wasm_bindgen]
extern "C" {
    /// What each request needs, in an object of JavaScript, because each call of WebAssembly takes time.
    pub type Needs;

    /// Whether some caller may change the policies, so that the revision in force must be asked for.
    #[wasm_bindgen(method, setter)]
    fn set_refresh(this: &Needs, needs: bool);

    /// Whether the client's country is needed, which is dear to find out.
    #[wasm_bindgen(method, setter)]
    fn set_country(this: &Needs, needs: bool);

    /// Whether each body that comes is for a call, so that a request needs to begin only once.
    #[wasm_bindgen(method, setter)]
    fn set_body(this: &Needs, needs: bool);
}
