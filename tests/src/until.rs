//! Waiting for what another process does. No wait has a limit: the runner ends a test that hangs, and a test that waits for long
//! says before for what.

use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant};

/// A test that waits longer says so.
const LONG: Duration = Duration::from_secs(20);

/// Between two looks, so that they leave the other process some time.
const PAUSE: Duration = Duration::from_millis(2);

pub(crate) struct Wait {
    began: Instant,
    is_told: bool,
}

impl Wait {
    pub(crate) fn begin() -> Self {
        Self { began: Instant::now(), is_told: false }
    }

    pub(crate) fn go_on(&mut self, what: impl Display) {
        if !self.is_told && self.began.elapsed() > LONG {
            self.is_told = true;
            eprintln!("still waits until {what}");
        }
    }
}

/// Looks until this holds.
pub fn until(what: impl Display, mut holds: impl FnMut() -> bool) {
    let mut wait = Wait::begin();
    while !holds() {
        wait.go_on(&what);
        thread::sleep(PAUSE);
    }
}

/// Looks until this holds, while other tasks go on.
pub async fn until_async(what: impl Display, holds: impl AsyncFn() -> bool) {
    let mut wait = Wait::begin();
    while !holds().await {
        wait.go_on(&what);
        tokio::time::sleep(PAUSE).await;
    }
}
