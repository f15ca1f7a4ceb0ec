//! The guest in wasmtime. This host keeps the states and the guest decides.

use std::collections::HashMap;
use std::fmt;

use anyhow::{Context, Result, bail};
use tidegate_gate::{
    CostExceedsCapacity, Decision, Effect, Limits, Micros, Operation, OperationError, Probability,
    Resolved, Timestamp, Transaction, Verdict,
};
use wasmtime::{Engine, Instance, Memory, Module, Store, TypedFunc};

use crate::local::guest_module;

/// `crates/guest` in wasmtime, and the stored records of all keys.
pub struct Guest {
    module: Loaded,
    /// The bytes of each record, by its name.
    stored: HashMap<String, Vec<u8>>,
}

impl fmt::Debug for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guest").field("stored", &self.stored.len()).finish_non_exhaustive()
    }
}

impl Guest {
    /// Loads the guest that `cargo xtask build guest` has built.
    ///
    /// # Errors
    /// Returns an error if the guest is not built or has other exports.
    pub fn start() -> Result<Self> {
        Ok(Self { module: Loaded::start()?, stored: HashMap::new() })
    }

    /// Does one operation and returns its verdict. The guest does not report on each limit, so the verdict's
    /// `limits` are empty.
    ///
    /// # Errors
    /// Returns an [`OperationError`] if the limits cannot do the operation, and another error if the guest does
    /// not answer.
    pub fn operate(
        &mut self,
        resolved: &Resolved,
        now: Timestamp,
        operation: &Operation,
    ) -> Result<Verdict> {
        let mut transaction = Transaction::default();
        let joined = transaction.join(resolved);
        let found: Vec<_> =
            transaction.names().map(|name| self.stored.get(name).cloned()).collect();
        transaction.load(found);
        let mut failure = None;
        let answered = transaction.operate_by(&joined, now, operation, |limits, words, asked| {
            let told = self.module.operate(limits, words, now, asked);
            told.unwrap_or_else(|error| {
                failure = Some(error);
                Err(OperationError::InvalidState)
            })
        });
        if let Some(error) = failure {
            return Err(error);
        }
        let answered = answered?;
        for write in transaction.writes() {
            self.stored.insert(write.name.to_owned(), write.bytes.to_owned());
        }
        Ok(answered.verdict)
    }

    /// Returns the stored bytes of each record of a key, or `None` for a record that is not stored.
    #[must_use]
    pub fn blobs(&self, resolved: &Resolved) -> Vec<Option<Vec<u8>>> {
        let mut transaction = Transaction::default();
        transaction.join(resolved);
        transaction.names().map(|name| self.stored.get(name).cloned()).collect()
    }
}

/// The guest's module, and the limits that it knows.
struct Loaded {
    store: Store<()>,
    memory: Memory,
    buffer: usize,
    policy: TypedFunc<u32, i32>,
    operate: TypedFunc<(i32, u64, u32), i32>,
    /// The guest's handle for the limits with these parameters.
    handles: HashMap<Vec<u64>, i32>,
}

impl Loaded {
    fn start() -> Result<Self> {
        let file = guest_module();
        let engine = Engine::default();
        let module = Module::from_file(&engine, &file).map_err(anyhow::Error::from);
        let module = module.with_context(|| {
            format!("the guest is not built, {}: run `cargo xtask build guest`", file.display())
        })?;
        let mut store = Store::new(&engine, ());
        let instance = Instance::new(&mut store, &module, &[])?;
        let memory =
            instance.get_memory(&mut store, "memory").context("the guest has no memory")?;
        let buffer: TypedFunc<(), u32> = instance.get_typed_func(&mut store, "tidegate_buffer")?;
        let policy = instance.get_typed_func(&mut store, "tidegate_policy")?;
        let operate = instance.get_typed_func(&mut store, "tidegate_operate")?;
        let buffer = usize::try_from(buffer.call(&mut store, ())?)?;
        Ok(Self { store, memory, buffer, policy, operate, handles: HashMap::new() })
    }

    /// Does one operation on the words of all records.
    fn operate(
        &mut self,
        limits: &Limits,
        words: &mut [u64],
        now: Timestamp,
        operation: &Operation,
    ) -> Result<Result<Verdict, OperationError>> {
        let handle = self.handle(limits)?;
        let asked = operation.to_words();
        self.write(&[&*words, &asked].concat())?;
        let told =
            self.operate.call(&mut self.store, (handle, now.0, u32::try_from(asked.len())?))?;
        if told == 3 {
            return Ok(Err(OperationError::NeedsLease));
        }
        let each = limits.iter().count();
        let answer = self.read(words.len() + ANSWER_WORDS + each * LIMIT_WORDS)?;
        let (state, answer) = answer.split_at(words.len());
        let (answer, each) = answer.split_at(ANSWER_WORDS);
        let [limit, remaining, retry_after, reset_after, kind, factor, ref effect @ ..] = *answer
        else {
            bail!("the guest's buffer is too short");
        };
        let decision = match told {
            0 | 1 => decision_of([told.try_into()?, limit, remaining, retry_after, reset_after]),
            2 => {
                let (Operation::Decide(request) | Operation::Peek(request)) = operation else {
                    bail!("the guest refuses a cost in {operation:?}, which has none");
                };
                let (cost, capacity) = (request.cost, limits.capacity());
                return Ok(Err(CostExceedsCapacity { cost, capacity }.into()));
            }
            other => bail!("the guest answers {other} to {operation:?} of {limits:?}"),
        };
        words.copy_from_slice(state);
        let effect = Effect::of_numbers(u8::try_from(kind)?, effect.try_into()?);
        let Some(effect) = effect else { bail!("the guest answers an effect that there is not") };
        let (each, _) = each.as_chunks();
        let (limits, factor) =
            (each.iter().copied().map(decision_of).collect(), Probability::from_units(factor));
        let at = now;
        Ok(Ok(Verdict { at, decision, limits, factor, effect, degraded: false }))
    }

    /// The guest's handle for these limits. The guest learns them at their first use.
    fn handle(&mut self, limits: &Limits) -> Result<i32> {
        let parameters = limits.parameters();
        if let Some(handle) = self.handles.get(&parameters) {
            return Ok(*handle);
        }
        self.write(&parameters)?;
        let handle = self.policy.call(&mut self.store, u32::try_from(parameters.len())?)?;
        if handle < 0 {
            bail!("the guest refuses the limits {limits:?}");
        }
        self.handles.insert(parameters, handle);
        Ok(handle)
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

/// The decision in the words of a limit: whether it is a refusal, and four numbers.
const fn decision_of([refuses, limit, remaining, retry_after, reset_after]: [u64; 5]) -> Decision {
    let (retry_after, reset_after) = (Micros(retry_after), Micros(reset_after));
    match refuses {
        0 => Decision::Allow { limit, remaining, reset_after },
        _ => Decision::Deny { limit, remaining, retry_after, reset_after },
    }
}

/// The number of words that the guest writes after the state.
const ANSWER_WORDS: usize = 9;
/// The number of words that the guest then writes for each limit.
const LIMIT_WORDS: usize = 5;
