//! What the nodes see of a world, and what must hold of it.

use alloc::collections::BTreeSet;

use super::*;

#[derive(Debug)]
struct Seen {
    run: Run,
    policy: &'static str,
    key: &'static str,
    asked: u64,
    is_answered: bool,
    /// The node has started again before the answer.
    is_gone: bool,
}

#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The authority never starts again: an authority that does has forgotten all questions.
    is_one_life: bool,
    operations: Vec<Seen>,
    questions: BTreeSet<(Run, u64)>,
    /// What each grant says that was taken of the key.
    serials: BTreeSet<(&'static str, &'static str, u64)>,
    /// The last of them that a node has heard, and the place of its operation.
    last: BTreeMap<(Run, &'static str, &'static str), (usize, u64)>,
    /// Operations on a key that were perhaps taken without a grant.
    unknown: BTreeMap<(&'static str, &'static str), u64>,
    pub(super) granted: u64,
    pub(super) refused: u64,
    /// By the name of the failure.
    pub(super) failed: BTreeMap<&'static str, u64>,
    pub(super) corrupt: u64,
    pub(super) late: u64,
    pub(super) joined: u64,
}

impl Watch {
    pub(super) fn new(is_one_life: bool) -> Self {
        Self { is_one_life, ..Self::default() }
    }

    pub(super) fn asked(
        &mut self,
        run: Run,
        policy: &'static str,
        key: &'static str,
        asked: u64,
    ) -> usize {
        self.operations.push(Seen { run, policy, key, asked, is_answered: false, is_gone: false });
        self.operations.len() - 1
    }

    pub(super) fn sent(&mut self, run: Run, question: &Question, options: &NodeOptions) {
        assert!(self.questions.insert((run, question.number)), "a number is used once");
        let content = message::Question::read(&question.bytes).unwrap().content().unwrap();
        let count = content.operations.len();
        assert!(count <= options.most_operations);
        assert!(question.bytes.len() <= options.most_bytes || count == 1);
        self.joined += u64::from(count > 1);
    }

    pub(super) fn replied(&mut self, bytes: &[u8], handled: Result<(), Ignored>) {
        match handled {
            Ok(()) => assert!(message::Reply::read(bytes).is_ok()),
            Err(Ignored::Late(_)) => self.late += 1,
            Err(Ignored::Unreadable(_)) => self.corrupt += 1,
            Err(other) => panic!("{other}"),
        }
    }

    /// The node of these operations will not hear of them.
    pub(super) fn gone(&mut self, run: Run) {
        for seen in self.operations.iter_mut().filter(|seen| seen.run == run && !seen.is_answered) {
            seen.is_gone = true;
            *self.unknown.entry((seen.policy, seen.key)).or_default() += 1;
        }
    }

    pub(super) fn answered(
        &mut self,
        run: Run,
        answer: Delivered<usize>,
        time: u64,
        options: &NodeOptions,
    ) {
        let place = answer.asked.token;
        let seen = &mut self.operations[place];
        assert!(!seen.is_answered && !seen.is_gone && seen.run == run, "{seen:?}");
        seen.is_answered = true;
        assert!(time - seen.asked <= 2 * options.deadline.0, "{seen:?} at {time}");
        let key = (seen.policy, seen.key);
        let verdict = match answer.result {
            Ok(verdict) if verdict.decision.is_allowed() => verdict,
            Ok(_) => {
                self.refused += 1;
                return;
            }
            Err(failure) => return self.failed(key, &failure),
        };
        self.granted += 1;
        let serial = units(&verdict);
        assert!(self.serials.insert((key.0, key.1, serial)), "{serial} of {key:?} granted twice");
        assert!(key.0 != "small" || serial <= SMALL, "{serial} units");
        if let Some((before, last)) = self.last.insert((run, key.0, key.1), (place, serial)) {
            let is_ordered = (before < place) == (last < serial);
            assert!(is_ordered || !self.is_one_life, "the order of {key:?}");
        }
    }

    fn failed(&mut self, key: (&'static str, &'static str), failure: &Failure) {
        let (name, is_unknown) = match failure {
            Failure::Unknown => ("unknown", true),
            Failure::Store(_) => ("store", true),
            // if the question comes again, there may be room
            Failure::Overloaded { most } if *most == wide(LITTLE) => ("memory", true),
            Failure::Overloaded { .. } => ("overloaded", false),
            Failure::TooLate => ("too late", false),
            other => panic!("{other}"),
        };
        *self.failed.entry(name).or_default() += 1;
        *self.unknown.entry(key).or_default() += u64::from(is_unknown);
    }

    /// Each unit that was taken belongs to an operation.
    pub(super) fn check_end(&self, taken: impl Fn(&str, &str) -> u64) {
        assert!(self.operations.iter().all(|seen| seen.is_answered || seen.is_gone));
        for policy in ["large", "small"] {
            for key in KEYS {
                let granted =
                    self.serials.range((policy, key, 0)..=(policy, key, u64::MAX)).count();
                let unknown = self.unknown.get(&(policy, key)).copied().unwrap_or(0);
                let (taken, granted) = (taken(policy, key), wide(granted));
                assert!(taken >= granted, "{policy} {key}: {taken} taken, {granted} granted");
                let most = granted + unknown;
                assert!(
                    !self.is_one_life || taken <= most,
                    "{policy} {key}: {taken} taken of {most}"
                );
            }
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.granted += other.granted;
        self.refused += other.refused;
        self.corrupt += other.corrupt;
        self.late += other.late;
        self.joined += other.joined;
        for (name, count) in &other.failed {
            *self.failed.entry(name).or_default() += count;
        }
    }

    /// The histories are of use only if all this happens in them.
    pub(super) fn check_coverage(&self) {
        let failed = |name| self.failed.get(name).copied().unwrap_or(0);
        let names = ["unknown", "store", "memory", "overloaded", "too late"];
        let counts = [self.granted, self.refused, self.corrupt, self.late, self.joined];
        let all = counts.into_iter().chain(names.map(failed));
        assert!(all.into_iter().all(|count| count > 100), "{counts:?} {:?}", self.failed);
    }
}
