//! Callers who ask without a pause while a test disturbs the servers, and an account of what they were granted.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use tidegate::gate::Policy;
use tidegate::store::{Redis, StoreError};
use tidegate_tests::until_async;

use super::{NOW, on, policy};

/// More than a test asks for.
const LIMIT: u64 = 1_000_000;

/// What is asked: single units of some keys.
pub struct Load {
    pub stores: Vec<Redis>,
    pub policy: Arc<Policy>,
    pub keys: Vec<String>,
    /// The number of callers of each store.
    pub callers: usize,
    /// The units granted of each key.
    granted: Vec<Cell<u64>>,
}

/// The account of a load: the answers of one run, and the units of all runs so far.
#[derive(Debug, Default)]
pub struct Account {
    pub granted: u64,
    /// The answers that were errors.
    pub failed: u64,
    /// The units that could be had beyond the limit: those granted and those that are left, minus the limit.
    pub beyond: u64,
    /// The units that are taken, and that nobody got.
    pub lost: u64,
    pub last_error: Option<StoreError>,
}

pub fn limits() -> Arc<Policy> {
    policy(&format!("{{ algorithm = 'fixed_window', limit = {LIMIT}, period = '365d' }}"))
}

/// Waits until this is true.
pub async fn holds(is_true: impl AsyncFn() -> bool) {
    until_async("this holds", is_true).await;
}

/// Between two attempts, so that they leave the servers some time.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(2)).await;
}

impl Load {
    pub fn new(stores: Vec<Redis>, keys: u32) -> Self {
        Self::on(stores, (0..keys).map(|key| format!("user:{key}")).collect())
    }

    pub fn on(stores: Vec<Redis>, keys: Vec<String>) -> Self {
        let granted = vec![Cell::new(0); keys.len()];
        Self { stores, policy: limits(), keys, callers: 4, granted }
    }

    /// Asks while `disturb` runs, and once more for each key after it.
    pub async fn while_running(&self, disturb: impl Future<Output = ()>) -> Account {
        let stop = Cell::new(false);
        let account = Cell::new(Account::default());
        let ask = async |store: &Redis, first: usize| {
            for turn in first.. {
                let key = turn % self.keys.len();
                let answer = store.operate(&on(&self.policy, &self.keys[key]), NOW, 1).await;
                let (mut now, mut now_failed) = (account.take(), false);
                match answer {
                    Ok(verdict) => {
                        assert!(verdict.decision.is_allowed());
                        now.granted += 1;
                        self.granted[key].set(self.granted[key].get() + 1);
                    }
                    Err(error) => {
                        now_failed = true;
                        now.failed += 1;
                        now.last_error = Some(error);
                    }
                }
                account.set(now);
                if now_failed {
                    pause().await;
                }
                if stop.get() && turn >= first + self.keys.len() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        };
        let callers = (0..self.callers * self.stores.len())
            .map(|caller| ask(&self.stores[caller % self.stores.len()], caller * 7));
        let disturbed = async {
            disturb.await;
            stop.set(true);
        };
        let ((), _) = join(disturbed, join_all(callers)).await;
        let mut account = account.take();
        for (key, granted) in self.keys.iter().zip(&self.granted) {
            let left = self.left(key).await;
            account.beyond += (granted.get() + left).saturating_sub(LIMIT);
            account.lost += LIMIT.saturating_sub(granted.get() + left);
        }
        account
    }

    /// The units that are left of a key.
    pub async fn left(&self, key: &str) -> u64 {
        self.left_by(&self.stores[0], key).await
    }

    /// The same, by this store.
    async fn left_by(&self, store: &Redis, key: &str) -> u64 {
        let key = on(&self.policy, key);
        loop {
            if let Ok(verdict) = store.operate(&key, NOW, 0).await {
                return verdict.decision.remaining();
            }
            pause().await;
        }
    }

    /// Waits until all stores decide on all keys again.
    pub async fn recovers(&self) {
        for store in &self.stores {
            for key in &self.keys {
                self.left_by(store, key).await;
            }
        }
    }
}
