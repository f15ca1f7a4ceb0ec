//! A naive master of a suppression: remembers every report and adds all reports up for each answer.

const PART: i128 = 6_000_000;
const REPORT_EVERY: i128 = 2_000_000;

/// The estimator of the rate.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the variants are those of the configuration")]
pub enum Profile {
    LinearAdmitted { ramp: i128 },
    ModifiedMean,
    NewestPart,
}

/// The configuration: `units` per `period` microseconds.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the fields are those of the configuration")]
pub struct Rule {
    pub units: i128,
    pub period: i128,
    pub profile: Profile,
}

/// A naive master of one account.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    newest: i128,
    /// The part, the admitted units and the suppressed units of each report.
    reports: Vec<(i128, i128, i128)>,
}

impl Oracle {
    /// Counts a report that arrives at `now`.
    pub fn report(&mut self, now: u64, offered_at: u64, admitted: u64, suppressed: u64) {
        let now = i128::from(now);
        let offered_at = i128::from(offered_at).min(now + PART);
        self.clock(now.max(offered_at));
        let part = offered_at.div_euclid(PART);
        self.reports.push((part, admitted.into(), suppressed.into()));
    }

    /// The factor in units of 2^-32.
    #[must_use]
    pub fn factor(&self, rule: Rule, now: u64) -> u64 {
        let mut settled = self.clone();
        settled.clock(now.into());
        settled.factor_now(rule)
    }

    /// The newest time seen.
    #[must_use]
    pub fn newest(&self) -> u64 {
        u64::try_from(self.newest).unwrap_or_default()
    }

    fn clock(&mut self, now: i128) {
        if now < self.newest - 4 * PART {
            let shift = self.newest.div_euclid(PART) - now.div_euclid(PART);
            for report in &mut self.reports {
                report.0 -= shift;
            }
            self.newest = now;
        }
        self.newest = self.newest.max(now);
    }

    fn factor_now(&self, Rule { units, period, profile }: Rule) -> u64 {
        let of = |age: i128| {
            let part = self.newest.div_euclid(PART) - age;
            self.reports.iter().filter(move |report| report.0 == part)
        };
        let offered = |age| of(age).map(|report| report.1 + report.2).sum::<i128>();
        // 1 − L/x with x = sum/span
        let down_to_limit = |sum: i128, span: i128| {
            crate::shed::probability(sum * period - units * span, (sum * period).max(1))
        };
        let complete = offered(1) + offered(2) + offered(3);
        let mean = if 3 * offered(0) < complete {
            down_to_limit(complete, 3 * PART)
        } else {
            down_to_limit(complete + offered(0), 4 * PART)
        };
        match profile {
            Profile::LinearAdmitted { ramp } => {
                let admitted: i128 =
                    (0..4).map(|age| of(age).map(|report| report.1).sum::<i128>()).sum();
                let limit = units * 4 * PART;
                crate::shed::probability(admitted * period - limit, limit * ramp)
            }
            Profile::ModifiedMean => mean,
            Profile::NewestPart => {
                let elapsed = self.newest.rem_euclid(PART);
                let mut highest = mean.max(down_to_limit(offered(1), PART));
                if elapsed < REPORT_EVERY {
                    highest = highest.max(down_to_limit(offered(2), PART));
                }
                if offered(0) * period > units * PART {
                    let span = elapsed.max(REPORT_EVERY);
                    highest = highest.max(down_to_limit(offered(0), span));
                }
                highest
            }
        }
    }
}
