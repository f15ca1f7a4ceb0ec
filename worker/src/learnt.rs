//! The policies of limiters, as the objects of an isolate know them: those about which they were asked.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use tidegate_gate::Policies;
use tidegate_http::Revisions;

use crate::fields::Reader;

/// The most policies that an isolate knows. An object asks again for a policy that was forgotten.
const MOST_KNOWN: usize = 64;

thread_local! {
    /// The newest first.
    static KNOWN: RefCell<VecDeque<Rc<Revision>>> = const { RefCell::new(VecDeque::new()) };
}

/// One policy.
#[derive(Debug)]
pub(crate) struct Revision {
    pub(crate) policies: Arc<Policies>,
    hash: String,
}

/// The policy of this hash, if it is known.
///
/// # Errors
/// Fails without a hash, because such a Worker has no deployed policies.
pub(crate) fn revision(hash: Option<&str>) -> Result<Option<Rc<Revision>>, String> {
    let hash = hash.ok_or("expected the hash of a policy, found none")?;
    Ok(KNOWN.with_borrow(|known| known.iter().find(|revision| revision.hash == hash).cloned()))
}

/// The hash by which a policy is known.
pub(crate) fn hash_of(policy: &str) -> String {
    Revisions::hash(policy)
}

/// Remembers a policy by the hash of its text. The hash that the caller gives is not trusted.
///
/// # Errors
/// Returns the error of the policy. Nothing changes.
pub(crate) fn learn(policy: &str) -> Result<(), String> {
    let hash = hash_of(policy);
    if revision(Some(&hash))?.is_some() {
        return Ok(());
    }
    let mut fields = Reader::new(policy);
    let (name, text) = fields
        .text()
        .zip(fields.text())
        .ok_or("expected a name and the text of a policy, found fewer fields")?;
    let policies = Arc::new(tidegate_wasm::policy_of(name, text)?);
    KNOWN.with_borrow_mut(|known| {
        known.push_front(Rc::new(Revision { policies, hash }));
        known.truncate(MOST_KNOWN);
    });
    Ok(())
}
