//! The guest under wasmtime: states here, decisions there.

use std::collections::HashMap;
use std::fmt;

use anyhow::{Context, Result, bail};
use tidegate_gate::http::DecisionForm;
use tidegate_gate::{Limits, Part, Policies, Rule};
use wasmtime::{Engine, Instance, Memory, Module, Store, TypedFunc};

use super::trace::Event;
use crate::local::guest_module;

/// `crates/guest` in wasmtime, and the states of all keys.
pub struct Guest {
    store: Store<()>,
    memory: Memory,
    buffer: usize,
    decide: TypedFunc<(i32, u64, u64), i32>,
    policies: Policies,
    policy: TypedFunc<u32, i32>,
    /// The guest's handles of limits, by the fingerprints of their parts.
    handles: HashMap<Vec<u64>, i32>,
    /// By policy, fingerprint and part of a key.
    states: HashMap<(usize, u64, String), Vec<u64>>,
}

impl fmt::Debug for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guest").field("handles", &self.handles).finish_non_exhaustive()
    }
}

impl Guest {
    pub(super) fn start(policies: &Policies) -> Result<Self> {
        let file = guest_module();
        let engine = Engine::default();
        let module = Module::from_file(&engine, &file).map_err(anyhow::Error::from);
        let module = module.with_context(|| {
            format!("the guest is not built, {}: `cargo xtask build guest`", file.display())
        })?;
        let mut store = Store::new(&engine, ());
        let instance = Instance::new(&mut store, &module, &[])?;
        let memory =
            instance.get_memory(&mut store, "memory").context("the guest has no memory")?;
        let buffer: TypedFunc<(), u32> = instance.get_typed_func(&mut store, "tidegate_buffer")?;
        let policy: TypedFunc<u32, i32> = instance.get_typed_func(&mut store, "tidegate_policy")?;
        let decide = instance.get_typed_func(&mut store, "tidegate_decide")?;
        let buffer = usize::try_from(buffer.call(&mut store, ())?)?;
        let (policies, handles, states) = (policies.clone(), HashMap::new(), HashMap::new());
        Ok(Self { store, memory, buffer, decide, policies, policy, handles, states })
    }

    pub(super) fn decide(&mut self, event: &Event) -> Result<DecisionForm> {
        let policy = self.policies.all().get(event.policy).context("no such policy")?.clone();
        let (limits, key) = match policy.rule(&event.key) {
            Rule::Listed(decision) => return Ok(decision.into()),
            Rule::Limited(limits, key) => (limits, key),
        };
        let handle = self.handle(limits)?;
        let mut state = self.gather(event.policy, limits, &key);
        self.write(&state)?;
        let answer = self.decide.call(&mut self.store, (handle, event.at.0, event.cost))?;
        let allowed = match answer {
            0 => true,
            1 => false,
            other => bail!("the guest answers {other} to {event:?}"),
        };
        state = self.read(limits.words().saturating_add(4))?;
        let decision = state.split_off(limits.words());
        for (part, words) in limits.split(&state) {
            let name = (event.policy, part.fingerprint(), part.depth().of(&key).to_owned());
            self.states.insert(name, words.to_vec());
        }
        let [limit, remaining, retry_after_us, reset_after_us] = *decision.as_slice() else {
            bail!("the guest's buffer is too short");
        };
        Ok(DecisionForm { allowed, limit, remaining, retry_after_us, reset_after_us })
    }

    pub(super) fn words(&self, event: &Event) -> Option<Vec<u64>> {
        let policy = self.policies.all().get(event.policy)?;
        let Rule::Limited(limits, key) = policy.rule(&event.key) else { return None };
        Some(self.gather(event.policy, limits, &key))
    }

    /// What the guest calls these limits; it learns them at their first use.
    fn handle(&mut self, limits: &Limits) -> Result<i32> {
        let name: Vec<u64> = limits.parts().iter().map(Part::fingerprint).collect();
        if let Some(handle) = self.handles.get(&name) {
            return Ok(*handle);
        }
        let parameters = limits.parameters();
        self.write(&parameters)?;
        let handle = self.policy.call(&mut self.store, u32::try_from(parameters.len())?)?;
        if handle < 0 {
            bail!("the guest refuses the limits {limits:?}");
        }
        self.handles.insert(name, handle);
        Ok(handle)
    }

    /// The words of all parts of a key.
    fn gather(&self, policy: usize, limits: &Limits, key: &str) -> Vec<u64> {
        let mut words = Vec::with_capacity(limits.words());
        for part in limits.parts() {
            let name = (policy, part.fingerprint(), part.depth().of(key).to_owned());
            match self.states.get(&name) {
                Some(own) => words.extend_from_slice(own),
                None => words.resize(words.len() + part.words(), 0),
            }
        }
        words
    }

    fn write(&mut self, words: &[u64]) -> Result<()> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Ok(self.memory.write(&mut self.store, self.buffer, &bytes)?)
    }

    fn read(&self, words: usize) -> Result<Vec<u64>> {
        let mut bytes = vec![0; words.saturating_mul(8)];
        self.memory.read(&self.store, self.buffer, &mut bytes)?;
        let (words, _) = bytes.as_chunks();
        Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }
}
