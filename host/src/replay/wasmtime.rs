//! The guest under wasmtime: states here, decisions there.

use std::collections::HashMap;
use std::fmt;

use anyhow::{Context, Result, bail};
use tidegate_gate::Policies;
use tidegate_gate::http::DecisionForm;
use wasmtime::{Engine, Instance, Memory, Module, Store, TypedFunc};

use super::trace::Event;
use crate::local::guest_module;

/// `crates/guest` in wasmtime, and the states of all keys.
pub struct Guest {
    store: Store<()>,
    memory: Memory,
    buffer: usize,
    decide: TypedFunc<(i32, u64, u64), i32>,
    /// The handle of each policy, and how many words its states have.
    policies: Vec<(i32, usize)>,
    states: HashMap<(usize, String), Vec<u64>>,
}

impl fmt::Debug for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guest").field("policies", &self.policies).finish_non_exhaustive()
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
        let mut guest =
            Self { store, memory, buffer, decide, policies: Vec::new(), states: HashMap::new() };
        for each in policies.all() {
            let parameters: Vec<u64> =
                each.limits().iter().flat_map(|limit| limit.limit.parameters()).collect();
            guest.write(&parameters)?;
            let limits = u32::try_from(each.limits().len())?;
            let handle = policy.call(&mut guest.store, limits)?;
            if handle < 0 {
                bail!("the guest refuses policy {:?}", each.name());
            }
            guest.policies.push((handle, each.words()));
        }
        Ok(guest)
    }

    pub(super) fn decide(&mut self, event: &Event) -> Result<DecisionForm> {
        let &(policy, words) = self.policies.get(event.policy).context("no such policy")?;
        let name = (event.policy, event.key.clone());
        let mut state = self.states.remove(&name).unwrap_or_else(|| vec![0; words]);
        self.write(&state)?;
        let arguments = (policy, event.at.0, event.cost);
        let answer = self.decide.call(&mut self.store, arguments)?;
        let allowed = match answer {
            0 => true,
            1 => false,
            other => bail!("the guest answers {other} to {event:?}"),
        };
        state = self.read(words.saturating_add(4))?;
        let decision = state.split_off(words);
        self.states.insert(name, state);
        let [limit, remaining, retry_after_us, reset_after_us] = *decision.as_slice() else {
            bail!("the guest's buffer is too short");
        };
        Ok(DecisionForm { allowed, limit, remaining, retry_after_us, reset_after_us })
    }

    pub(super) fn words(&self, event: &Event) -> Option<&[u64]> {
        self.states.get(&(event.policy, event.key.clone())).map(Vec::as_slice)
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
