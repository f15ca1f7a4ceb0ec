//! The guest in wasmtime, by its C ABI. It answers for all limits together and does not say when.

use std::collections::HashMap;

use tidegate::gate::{
    Allowance, Decision, Limits, Micros, Operation, Part, Policy, Probability, Rule, Timestamp,
    Verdict, blob,
};
use tidegate::local::guest_module;
use tidegate_tests::vectors::{Backend, Step, Vectors, hex};
use wasmtime::{Engine, Instance, Memory, Module, Store, TypedFunc};

pub struct Guest {
    store: Store<()>,
    memory: Memory,
    buffer: usize,
    policy: TypedFunc<u32, i32>,
    operate: TypedFunc<(i32, u64, u32), i32>,
    /// By the policy's name, the fingerprint of the limits and the part of the key.
    states: HashMap<(String, u64, String), Vec<u64>>,
}

impl Guest {
    pub fn start() -> Self {
        let file = guest_module();
        let engine = Engine::default();
        let module = Module::from_file(&engine, &file)
            .unwrap_or_else(|error| panic!("`cargo xtask build guest`: {error:#}"));
        let mut store = Store::new(&engine, ());
        let instance = Instance::new(&mut store, &module, &[]).unwrap();
        let memory = instance.get_memory(&mut store, "memory").unwrap();
        let policy = instance.get_typed_func(&mut store, "tidegate_policy").unwrap();
        let operate = instance.get_typed_func(&mut store, "tidegate_operate").unwrap();
        let buffer: TypedFunc<(), u32> =
            instance.get_typed_func(&mut store, "tidegate_buffer").unwrap();
        let buffer = usize::try_from(buffer.call(&mut store, ()).unwrap()).unwrap();
        Self { store, memory, buffer, policy, operate, states: HashMap::new() }
    }

    /// `None` if the cost can never be granted.
    fn operate(
        &mut self,
        policy: &Policy,
        key: &str,
        now: Timestamp,
        operation: &Operation,
    ) -> Option<Verdict> {
        let (limits, key) = match policy.rule(key) {
            Rule::Listed(decision) => return Some(Verdict::listed(now, decision)),
            Rule::Limited(limits, key) => (limits, key),
        };
        let parameters = limits.parameters();
        self.write(&parameters);
        let length = u32::try_from(parameters.len()).unwrap();
        let handle = self.policy.call(&mut self.store, length).unwrap();
        assert!(handle >= 0, "the guest refuses {limits:?}");

        let state = self.state(policy, limits, &key);
        let asked = operation.to_words();
        self.write(&[&state[..], &asked].concat());
        let length = u32::try_from(asked.len()).unwrap();
        let told = self.operate.call(&mut self.store, (handle, now.0, length)).unwrap();
        let words = self.read(limits.words() + 9);
        let (state, answer) = words.split_at(limits.words());
        let [
            limit,
            remaining,
            retry_after,
            reset_after,
            live,
            factor,
            left,
            granted_at,
            expires_at,
        ] = *answer
        else {
            panic!("nine numbers");
        };
        let reset_after = Micros(reset_after);
        let decision = match told {
            0 => Decision::Allow { limit, remaining, reset_after },
            1 => Decision::Deny { limit, remaining, retry_after: Micros(retry_after), reset_after },
            2 => return None,
            other => panic!("the guest answers {other} to {operation:?} of {limits:?}"),
        };
        for (part, words) in limits.split(state) {
            self.states.insert(name(policy, part, &key), words.to_vec());
        }
        let live = [Some(false), Some(true), None][usize::try_from(live).unwrap()];
        let factor = Probability::from_units(factor);
        let granted = Allowance {
            left,
            granted_at: Timestamp(granted_at),
            expires_at: Timestamp(expires_at),
        };
        let allowance = matches!(operation, Operation::Budget(_)).then_some(granted);
        Some(Verdict { at: now, decision, limits: Vec::new(), live, factor, allowance })
    }

    /// The words of all parts.
    fn state(&self, policy: &Policy, limits: &Limits, key: &str) -> Vec<u64> {
        let words = limits.parts().iter().map(|part| {
            let own = self.states.get(&name(policy, part, key));
            own.cloned().unwrap_or_else(|| vec![0; part.words()])
        });
        words.collect::<Vec<_>>().concat()
    }

    fn write(&mut self, words: &[u64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.memory.write(&mut self.store, self.buffer, &bytes).unwrap();
    }

    fn read(&self, words: usize) -> Vec<u64> {
        let mut bytes = vec![0; words * 8];
        self.memory.read(&self.store, self.buffer, &mut bytes).unwrap();
        bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
    }
}

fn name(policy: &Policy, part: &Part, key: &str) -> (String, u64, String) {
    (policy.name().to_owned(), part.fingerprint(), part.depth().of(key).to_owned())
}

impl Backend for Guest {
    const SILENT: &[&str] = &["at_us", "limits"];

    fn answer(&mut self, vectors: &Vectors, step: &Step) -> String {
        let policy = &vectors.policy;
        step.answer_by(policy, |operation| self.operate(policy, &step.key, step.at(), &operation))
    }

    fn states(&mut self, vectors: &Vectors, key: &str) -> Option<Vec<String>> {
        let policy = &vectors.policy;
        let Rule::Limited(limits, key) = policy.rule(key) else { return Some(Vec::new()) };
        let words = self.state(policy, limits, &key);
        let parts = limits.split(&words);
        Some(parts.map(|(part, words)| hex(&blob::encode(policy, part, words))).collect())
    }
}
