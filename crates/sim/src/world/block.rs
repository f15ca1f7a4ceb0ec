//! Blocks of keys, done once more without the code of the gate: the storage keeps them behind the words of the
//! record that counts by the whole key.

use tidegate_gate::{
    Budget, Decision, Depth, Kind, Limits, Micros, Operation, OperationError, Probability, Record,
    Request, Timestamp, Verdict,
};

/// A block of a key. Times are in µs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    from: u64,
    span: u64,
}

/// Whether a record keeps the block of its key.
pub(super) fn keeps_block(record: &Record) -> bool {
    record.depth() == Depth::Whole
}

impl Block {
    /// The block in these words, which follow those of the limits.
    pub(super) const fn of_words(words: &[u64]) -> Option<Self> {
        match *words {
            [from, span] => Some(Self { from, span }),
            _ => None,
        }
    }

    pub(super) const fn words(self) -> [u64; 2] {
        [self.from, self.span]
    }

    /// How long the block still lasts. A clock that stands too far before its beginning was wrong when it began.
    fn left(self, now: Timestamp, period: Micros) -> Option<u64> {
        let early = self.from.saturating_sub(now.0) > self.span.max(period.0);
        let left = (self.from + self.span).saturating_sub(now.0);
        (left > 0 && !early).then_some(left)
    }
}

/// Does an operation on a key that may be blocked. The words are those of all limits.
pub(super) fn operate(
    limits: &Limits,
    words: &mut [u64],
    block: &mut Option<Block>,
    now: Timestamp,
    operation: &Operation,
) -> Result<Verdict, OperationError> {
    let look = Operation::from(0);
    let taken = limits.operate(words, now, &look)?.at;
    match operation {
        Operation::Block(span) if limits.records().iter().any(keeps_block) => {
            *block = (span.0 > 0).then_some(Block { from: taken.0, span: span.0 });
        }
        Operation::Block(_) => return Err(OperationError::NoWholeKey),
        Operation::Reset(_) => *block = None,
        _ => {}
    }
    let Some(left) = block.and_then(|block| block.left(taken, limits.period())) else {
        if !operation.is_peek() {
            *block = block.filter(|block| taken.0 < block.from + block.span);
        }
        let is_block = matches!(operation, Operation::Block(_));
        return limits.operate(words, now, if is_block { &look } else { operation });
    };
    let verdict = match *operation {
        Operation::Decide(request) if request.cost > 0 => refuse(limits, words, now, &request)?,
        Operation::Peek(request) => {
            limits.operate(words, now, operation)?;
            limits.operate(words, now, &Operation::Peek(Request { cost: 0, ..request }))?
        }
        Operation::Block(_) => limits.operate(words, now, &look)?,
        Operation::Budget(budget) => {
            limits.operate(words, now, &Operation::Budget(Budget { wants: 0, ..budget }))?
        }
        other => limits.operate(words, now, &other)?,
    };
    let asks = matches!(operation, Operation::Decide(_) | Operation::Peek(_) | Operation::Block(_));
    let decision = blocked(&verdict.decision, Micros(left), asks);
    let factor = verdict.factor.map(|_| Probability::CERTAIN);
    Ok(Verdict { decision, factor, ..verdict })
}

/// What a blocked key answers: nothing remains before the block ends.
fn blocked(said: &Decision, left: Micros, asks: bool) -> Decision {
    let (limit, reset_after) = (said.limit(), said.reset_after().max(left));
    match asks || !said.is_allowed() {
        true => {
            let retry_after = said.retry_after().max(left);
            Decision::Deny { limit, remaining: 0, retry_after, reset_after }
        }
        false => Decision::Allow { limit, remaining: 0, reset_after },
    }
}

/// Refuses a request, and lets each limit record the refusal.
fn refuse(
    limits: &Limits,
    words: &mut [u64],
    now: Timestamp,
    request: &Request,
) -> Result<Verdict, OperationError> {
    let looked = limits.operate(words, now, &Operation::Peek(Request { cost: 0, ..*request }))?;
    let mut each = Vec::new();
    let (mut rest, mut retry_after) = (words, Micros::ZERO);
    let (mut numbers, mut reset_after) = ((Kind::Budget, u64::MAX, 0), Micros::ZERO);
    for named in limits.iter() {
        let (own, others) = rest.split_at_mut(named.limit.words());
        let grants = named.limit.peek(own, looked.at, request)?.is_allowed();
        let (said, wait) = named.limit.refuse(own, looked.at, request, grants)?;
        // the least kind of limit has the numbers, and of these the limit with the least remaining
        let (kind, remaining) = (named.limit.kind(), said.remaining());
        if (kind, remaining) < (numbers.0, numbers.1) {
            numbers = (kind, remaining, said.limit());
        }
        (retry_after, reset_after) = (retry_after.max(wait), reset_after.max(said.reset_after()));
        each.push(said);
        rest = others;
    }
    let (limit, remaining) = (numbers.2, numbers.1);
    let decision = Decision::Deny { limit, remaining, retry_after, reset_after };
    Ok(Verdict { decision, limits: each, ..looked })
}
