//! Breaks `tier` and `gate` in one place after another, and says whether the world notices:
//!
//! ```sh
//! cargo run -p tidegate-sim --example mutations            # all, some minutes
//! cargo run -p tidegate-sim --example mutations -- found   # those with this word in their name
//! ```
//!
//! Each mutation is written into the source, `cargo test -p tidegate-sim --test world` runs, and the source is
//! restored, also after an error, but not if the command is killed: see `git diff`. The text of a mutation must be
//! in its file exactly once: edit the list with the code. The command needs `timeout` of GNU coreutils.

#![expect(clippy::print_stdout, reason = "it is a command")]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::{env, fs};

use anyhow::{Context, Result, ensure};

const HOME: &str = "crates/tier/src/authority/home.rs";
const HOMES: &str = "crates/tier/src/authority/homes.rs";
const AUTHORITY: &str = "crates/tier/src/authority.rs";
const SESSION: &str = "crates/gate/src/session.rs";

/// A name, a file, a text in it, and what to write instead.
type Mutation = (&'static str, &'static str, &'static str, &'static str);

#[rustfmt::skip]
const MUTATIONS: [Mutation; 44] = [
    ("a settled answer is sent before the swap", HOME,
        "                Ok(answered) => decided.push((asked, answered.verdict)),",
        "                Ok(answered) if answered.is_settled => answers.push_back((of_each_key.remove(asked), Ok(answered.verdict))),
                Ok(answered) => decided.push((asked, answered.verdict)),"),
    ("found bytes are not taken", HOME,
        "        self.session.found(found);", "        drop(found);"),
    ("operations are done again in another order", HOME,
        "for (asked, _) in mem::take(decided) {", "for (asked, _) in mem::take(decided).into_iter().rev() {"),
    ("every answer is sent when other bytes were found", HOME,
        "Ok(Answered { verdict, is_settled: true }) => Ok(verdict),", "Ok(Answered { verdict, is_settled: _ }) => Ok(verdict),"),
    ("only the operations that are not settled stay in the session's order", HOME,
        "Ok(Answered { verdict, is_settled: true }) => Ok(verdict),", "Ok(Answered { verdict, is_settled }) if is_settled || !verdict.decision.is_allowed() => Ok(verdict),"),
    ("a failed operation is granted", HOME,
        "            for (asked, _) in decided.drain(..) {
                answers.push_back((of_each_key.remove(asked), Err(failure.clone())));",
        "            for (asked, verdict) in decided.drain(..) {
                let _ = failure;
                answers.push_back((of_each_key.remove(asked), Ok(verdict)));"),
    ("the session is kept after a failure", HOME,
        "                answers.push_back((of_each_key.remove(asked), Err(failure.clone())));
            }
        }
        self.forget();", "                answers.push_back((of_each_key.remove(asked), Err(failure.clone())));
            }
        }"),
    ("a contended operation is granted", HOME,
        "Ok(Answered { verdict, .. }) if takes_nothing(&asked.operation, &verdict) => {", "Ok(Answered { verdict, .. }) => {"),
    ("the session is kept when a home gives up", HOME,
        "            answers.push_back((of_each_key.remove(asked), answer));
        }
        self.forget();", "            answers.push_back((of_each_key.remove(asked), answer));
        }"),
    ("a refusal fails when a home gives up", HOME,
        "    is_refused || operation.is_peek()", "    let _ = is_refused;\n    operation.is_peek()"),
    ("callers that are gone are granted", HOME,
        "if is_droppable(&asked.operation) && is_gone(&asked.token) {", "if false && is_gone(&asked.token) {"),
    ("the release of a caller that is gone is left out", HOME,
        "if is_droppable(&asked.operation) && is_gone(&asked.token) {", "if is_gone(&asked.token) {"),
    ("the last operation is decided first", HOME,
        "waiting.pop_front()", "waiting.pop_back()"),
    ("bytes that are no state are remembered", HOME,
        "        session.forget_unreadable(); // somebody may mend them\n", ""),
    ("a swap is not remembered", HOME,
        "        self.session.stored(kept_until);\n", ""),
    ("patience goes on after a swap", HOME,
        "        self.session.stored(kept_until);
        if let Some(busy) = &mut self.busy {
            busy.lost_since = None;", "        self.session.stored(kept_until);
        if let Some(busy) = &mut self.busy {"),
    ("patience begins with another home's", HOME,
        "        let mut busy = self.busy.take()?;
        busy.lost_since = None;", "        let busy = self.busy.take()?;"),
    ("an old time counts", HOME,
        "session.operate(seat, asked.time(now), &asked.operation)", "let _ = now;\n    session.operate(seat, asked.now, &asked.operation)"),
    ("the present time always counts", AUTHORITY,
        "        if is_old { now } else { self.now }", "        let _ = is_old;\n        now"),
    ("patience is too short", AUTHORITY,
        "if lost > self.options.patience {", "if lost >= self.options.patience {"),
    ("a refused write is tried again", AUTHORITY,
        "                Outcome::Refused(found, error) => {
                    home.give_up(&found, (now, &Failure::Store(error)), &mut self.answers);",
        "                Outcome::Refused(found, _) => {
                    home.found(found, now, &mut self.answers);"),
    ("a home is not ready again after a swap", AUTHORITY,
        "                Outcome::Failed(error) => home.failed(&Failure::Store(error), &mut self.answers),
            }
            self.settle(id);", "                Outcome::Failed(error) => home.failed(&Failure::Store(error), &mut self.answers),
            }"),
    ("one operation fewer may wait", AUTHORITY,
        "match self.waiting <= most {", "match self.waiting < most {"),
    ("operations that are left out count as waiting", AUTHORITY,
        "            self.waiting = self.waiting.saturating_sub(gone);", "            let _ = gone;"),
    ("the search for homes to forget ends early", HOMES,
        "self.homes.capacity().saturating_add(1).saturating_mul(2)", "self.homes.capacity().saturating_mul(2)"),
    ("a home is forgotten while operations wait", HOMES,
        "Some(home) if home.is_idle() && !home.was_used => self.remove(id),", "Some(home) if !home.was_used => self.remove(id),"),
    ("the session does not take the bytes that it stored", SESSION,
        "            let before = self.found.replace(mem::take(&mut self.becomes));
            self.becomes = before.unwrap_or_default();
", ""),
    ("a slice that is only read is not compared", SESSION,
        "self.slots.iter_mut().filter(|slot| slot.is_used).map(Slot::used)", "self.slots.iter_mut().filter(|slot| slot.is_used && slot.due.is_some()).map(Slot::used)"),
    ("one slice is not compared", SESSION,
        "self.slots.iter_mut().filter(|slot| slot.is_used).map(Slot::used)", "self.slots.iter_mut().skip(1).filter(|slot| slot.is_used).map(Slot::used)"),
    ("a slice is not compared once others are", SESSION,
        "self.slots.iter_mut().filter(|slot| slot.is_used).map(Slot::used)", "self.slots.iter_mut().filter(|slot| slot.is_used).take(1).map(Slot::used)"),
    ("loaded bytes leave a write due", SESSION,
        "(self.is_used, self.is_carried, self.due) = (false, false, None);", "(self.is_used, self.is_carried) = (false, false);"),
    ("a slice expires early", SESSION,
        "let time_to_live = slice.time_to_live(&words, now);", "let time_to_live = Micros(slice.time_to_live(&words, now).0.div_euclid(2));"),
    ("an answer is settled although an earlier one is not", SESSION,
        "let mut is_settled = self.slots_of(seat).all(|slot| slot.due != Some(Due::BeforeAnswer));", "let mut is_settled = true;"),
    ("a refusal that a limit remembers is settled", SESSION,
        "let is_more = slice.remembers_refusals() || begins || unblocked || slot.is_carried;", "let is_more = begins || unblocked || slot.is_carried;"),
    ("the first refusal of a bucket that starts empty is settled", SESSION,
        "let is_more = slice.remembers_refusals() || begins || unblocked || slot.is_carried;", "let is_more = slice.remembers_refusals() || unblocked || slot.is_carried || (begins && false);"),
    ("the bytes of an earlier write are written again", SESSION,
        "            slot.is_encoded = false;\n", ""),
    ("the storage keeps other bytes for as long as the last ones", SESSION,
        "        self.kept_until = Micros::ZERO;\n", ""),
    ("the storage is never told how long to keep a slice", AUTHORITY,
        "    (!is_kept).then(|| Micros(needed.saturating_mul(2)))", "    (!is_kept && used.found.is_none()).then(|| Micros(needed.saturating_mul(2)))"),
    ("the clocks of the nodes count as equal", AUTHORITY,
        "let needed = used.write?.time_to_live.0.saturating_add(keep_longer.0).max(1);", "let needed = used.write?.time_to_live.0.max(1);\n    let _ = keep_longer;"),
    ("the storage is believed to keep a slice for longer", AUTHORITY,
        "        Some(keep) => Micros(at.0.saturating_add(keep.0)),", "        Some(keep) => Micros(at.0.saturating_add(keep.0.saturating_mul(2))),"),
    ("an operation is begun however long it waited", HOME,
        "            if asked.at < too_late {", "            if false && asked.at < too_late {"),
    ("an operation is too late at once", AUTHORITY,
        "let too_late = Micros(at.0.saturating_sub(self.options.most_wait.0));", "let too_late = at;"),
    ("a refusal on a state that was carried over is settled", SESSION,
        "let is_more = slice.remembers_refusals() || begins || unblocked || slot.is_carried;", "let is_more = slice.remembers_refusals() || begins || unblocked;"),
    ("a refusal makes an earlier write less urgent", SESSION,
        "slot.due = slot.due.max(Some(due));", "slot.due = Some(due);"),
];

/// How long the tests may take. A mutation that makes them hang is noticed too.
const DEADLINE_SECONDS: &str = "240";

/// The exit code of `timeout`.
const TIMED_OUT: i32 = 124;

fn main() -> Result<ExitCode> {
    let word = env::args().nth(1).unwrap_or_default();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut missed = 0;
    ensure!(noticed(&root)?.is_none(), "the tests fail without a mutation");
    for (name, file, from, to) in MUTATIONS.iter().filter(|(name, ..)| name.contains(&word)) {
        let source = Source::read(root.join(file))?;
        ensure!(
            source.text.matches(from).count() == 1,
            "{file}: expected once, for {name}: {from}"
        );
        fs::write(&source.path, source.text.replace(from, to))?;
        let noticed = noticed(&root)?;
        missed += u32::from(noticed.is_none());
        println!("{name}: {}", noticed.as_deref().unwrap_or("MISSED"));
    }
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// By what the tests fail; `None` if they pass. It is an error if the mutation does not compile.
fn noticed(root: &Path) -> Result<Option<String>> {
    let tests = |arguments: &[&str], output: Stdio| {
        let cargo = ["cargo", "test", "-q", "-p", "tidegate-sim", "--test", "world"];
        let mut command = Command::new("timeout");
        command.arg(DEADLINE_SECONDS).args(cargo).args(arguments).current_dir(root);
        command.stdout(output).stderr(Stdio::null()).status()
    };
    ensure!(tests(&["--no-run"], Stdio::null())?.success(), "the mutation does not compile");
    let log = root.join("target/mutations.log");
    let status = tests(&["every_invariant"], fs::File::create(&log)?.into())?;
    Ok(match status.code() {
        Some(0) => None,
        Some(TIMED_OUT) => Some("the tests hang".into()),
        _ => Some(first_seen(&log)),
    })
}

/// The first violation in the output of the tests, shortened.
fn first_seen(log: &Path) -> String {
    let output = fs::read_to_string(log).unwrap_or_default();
    let violation = output.lines().find(|line| line.starts_with("seed ") || line.contains(".txt"));
    violation.unwrap_or("the tests fail").chars().take(100).collect()
}

/// A source file, which is restored in the end.
struct Source {
    path: PathBuf,
    text: String,
}

impl Source {
    fn read(path: PathBuf) -> Result<Self> {
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok(Self { path, text })
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.path, &self.text) {
            println!("{}: not restored: {error}", self.path.display());
        }
    }
}
