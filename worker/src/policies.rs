//! The revisions of the policy file that an isolate knows: the deployed one, and those that callers have put over it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use js_sys::Reflect;
use tidegate_gate::{Policies, Policy, TimedPolicies, Timestamp};
use tidegate_http::{RevisionTag, Revisions};

/// The most revisions that are known beside the deployed one. Requests under way and the isolates of objects need those
/// that were in force a moment ago.
const MOST_PUT: usize = 4;

thread_local! {
    static KNOWN: RefCell<Option<Known>> = const { RefCell::new(None) };
}

/// One revision.
#[derive(Debug)]
pub(crate) struct Revision {
    pub(crate) policies: Arc<Policies>,
    pub(crate) tag: RevisionTag,
    /// The hash of the file, and after `@` the end of the override that ended last, because the policies differ then.
    pub(crate) name: String,
    /// The earliest time at which an override ends, and the text, to read it again then.
    pub(crate) ends: Option<(Timestamp, String)>,
}

struct Known {
    deployed: Rc<Revision>,
    /// The newest first.
    put: Vec<Rc<Revision>>,
}

/// The revision that was deployed with the Worker.
///
/// # Errors
/// Returns what is wrong with the policy file. The Worker serves nothing until the file is corrected.
pub(crate) fn deployed() -> Result<Rc<Revision>, String> {
    KNOWN.with_borrow_mut(|known| {
        if let Some(known) = known {
            return Ok(Rc::clone(&known.deployed));
        }
        let text = text()?;
        let policies = Policies::parse(&text).map_err(|error| format!("policies.toml: {error}"))?;
        let tag = RevisionTag { version: 1, hash: Revisions::hash(&text), origin: None };
        let policies = Arc::new(policies);
        let deployed = Rc::new(Revision { policies, name: tag.hash.clone(), tag, ends: None });
        *known = Some(Known { deployed: Rc::clone(&deployed), put: Vec::new() });
        Ok(deployed)
    })
}

/// The revision of this name, if it is known; without a name the deployed one.
pub(crate) fn revision(hash: Option<&str>) -> Result<Option<Rc<Revision>>, String> {
    let deployed = deployed()?;
    Ok(match hash {
        None => Some(deployed),
        Some(hash) => KNOWN.with_borrow(|known| known.as_ref().and_then(|known| known.find(hash))),
    })
}

/// Reads a file that was put over the deployed one, with the overrides beside it that hold at a time.
///
/// # Errors
/// Returns what is wrong with the file. Nothing changes.
pub(crate) fn learn(tag: RevisionTag, file: &str, now: Timestamp) -> Result<Rc<Revision>, String> {
    let timed = TimedPolicies::parse(file, now).map_err(|error| error.to_string())?;
    let TimedPolicies { mut policies, since, ends } = timed;
    let name = since.map_or_else(|| tag.hash.clone(), |since| format!("{}@{}", tag.hash, since.0));
    let ends = ends.map(|ends| (ends, file.to_owned()));
    policies = policies.sharing(&deployed()?.policies);
    KNOWN.with_borrow_mut(|known| {
        let put = known.as_mut().map(|known| &mut known.put).ok_or("no policies are deployed")?;
        for revision in &*put {
            policies = policies.sharing(&revision.policies);
        }
        let revision = Rc::new(Revision { policies: Arc::new(policies), tag, name, ends });
        put.retain(|known| known.name != revision.name);
        put.insert(0, Rc::clone(&revision));
        put.truncate(MOST_PUT);
        Ok(revision)
    })
}

/// The name of the revision that a policy is part of; `None` for the deployed one. A revision that is no longer known
/// has a hash that no object knows.
pub(crate) fn hash_of(policy: &Arc<Policy>) -> Option<String> {
    let has = |revision: &&Rc<Revision>| {
        revision.policies.get(policy.name()).is_some_and(|own| Arc::ptr_eq(own, policy))
    };
    KNOWN.with_borrow(|known| {
        let known = known.as_ref()?;
        if has(&&known.deployed) {
            return None;
        }
        Some(
            known
                .put
                .iter()
                .find(has)
                .map_or_else(|| "forgotten".to_owned(), |own| own.name.clone()),
        )
    })
}

impl Known {
    fn find(&self, hash: &str) -> Option<Rc<Revision>> {
        self.put.iter().find(|revision| revision.name == hash).cloned()
    }
}

/// The text of the deployed file, out of the global variable in which `worker.js` puts it.
pub(crate) fn text() -> Result<String, String> {
    let text = Reflect::get(&js_sys::global(), &"TIDEGATE_POLICIES".into()).ok();
    text.and_then(|text| text.as_string())
        .ok_or_else(|| "the policy file is not part of this Worker".to_owned())
}
