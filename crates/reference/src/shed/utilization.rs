//! A naive utilisation shedder: replays all calls for each answer.

/// The configuration, in parts per million and microseconds.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the fields are those of the configuration")]
pub struct Rule {
    pub good: i128,
    pub bad: i128,
    pub delay: i128,
    pub full: i128,
    pub classes: i128,
}

/// A naive shedder for one key.
#[derive(Clone, Debug)]
pub struct Oracle {
    rule: Rule,
    newest: i128,
    /// The time and the signal of each call.
    calls: Vec<(i128, Option<i128>)>,
}

/// The answer to one request. Spans are in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of the verdict")]
pub struct Answer {
    pub drop: u64,
    pub shed: bool,
    pub retry_after: u64,
}

impl Oracle {
    /// Makes the shedder of a key never seen.
    #[must_use]
    pub fn new(rule: Rule) -> Self {
        Self { rule, newest: 0, calls: Vec::new() }
    }

    /// Decides on a request of a class. For an observation, the caller ignores the answer.
    pub fn decide(&mut self, now: u64, signal: Option<u32>, class: u16, draw: u32) -> Answer {
        let now = i128::from(now);
        if now < self.newest - self.silence() {
            let shift = self.newest - now;
            for call in &mut self.calls {
                call.0 -= shift;
            }
            self.newest = now;
        }
        self.newest = self.newest.max(now);
        self.calls.push((self.newest, signal.map(i128::from)));

        let amount = self.amount();
        let drop = self.drop(amount, class);
        let shed = u64::from(draw) < drop;
        // a signal of 0 moves the amount by one whole in F
        let spared = |t: i128| self.part(amount - t * self.whole() / self.rule.full, class) <= 0;
        Answer { drop, shed, retry_after: if shed { crate::first(spared) } else { 0 } }
    }

    /// The shed amount in units of 1 / [`whole`](Self::whole).
    #[must_use]
    pub fn amount(&self) -> i128 {
        let Rule { good, bad, delay, full, .. } = self.rule;
        let headroom = 1_000_000 - bad;
        let rest = -delay * good * headroom;
        let (mut amount, mut last, mut signal) = (rest, 0, None);
        for &(at, measured) in &self.calls {
            if at - last >= self.silence() {
                (amount, signal) = (rest, None);
            }
            let elapsed = if signal.is_none() { 0 } else { (at - last).min(delay) };
            signal = measured.or(signal);
            amount += elapsed
                * match signal {
                    Some(u) if u < good => (u - good) * headroom,
                    Some(u) if u >= bad => (u - bad) * good,
                    _ => 0,
                };
            amount = amount.clamp(rest, full * good * headroom);
            last = at;
        }
        amount
    }

    /// The units of a shed amount of 1.
    #[must_use]
    pub fn whole(&self) -> i128 {
        self.rule.full * self.rule.good * (1_000_000 - self.rule.bad)
    }

    /// The newest time seen.
    #[must_use]
    pub fn newest(&self) -> u64 {
        u64::try_from(self.newest).unwrap_or_default()
    }

    fn drop(&self, amount: i128, class: u16) -> u64 {
        crate::shed::probability(self.part(amount, class), self.whole())
    }

    fn part(&self, amount: i128, class: u16) -> i128 {
        let Rule { classes, .. } = self.rule;
        if i128::from(class) >= classes {
            return 0;
        }
        amount.max(0) * classes - i128::from(class) * self.whole()
    }

    fn silence(&self) -> i128 {
        self.rule.delay + self.rule.full
    }
}
