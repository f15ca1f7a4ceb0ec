//! Callers who ask without a pause while a test disturbs the servers, and an account of what they were granted.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{join, join_all};
use tidegate::gate::Policy;
use tidegate::store::{Redis, StoreError};

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
}

/// The account of a load.
#[derive(Debug, Default)]
pub struct Account {
    pub granted: u64,
    /// The answers that were errors.
    pub failed: u64,
    /// The longest time that a caller waited.
    pub longest: Duration,
    /// The units that could be had beyond the limit: those granted and those that are left, minus the limit.
    pub beyond: u64,
    /// The units that are taken, and that nobody got.
    pub lost: u64,
    pub last_error: Option<StoreError>,
}

pub fn limits() -> Arc<Policy> {
    policy(&format!("{{ algorithm = 'fixed_window', limit = {LIMIT}, period = '365d' }}"))
}

impl Load {
    pub fn new(stores: Vec<Redis>, keys: u32) -> Self {
        let keys = (0..keys).map(|key| format!("user:{key}")).collect();
        Self { stores, policy: limits(), keys, callers: 4 }
    }

    /// Asks while `disturb` runs, and once more for each key after it.
    pub async fn while_running(&self, disturb: impl Future<Output = ()>) -> Account {
        let (stop, granted) = (Cell::new(false), vec![Cell::new(0_u64); self.keys.len()]);
        let account = Cell::new(Account::default());
        let ask = async |store: &Redis, first: usize| {
            for turn in first.. {
                let key = turn % self.keys.len();
                let asked = Instant::now();
                let answer = store.operate(&on(&self.policy, &self.keys[key]), NOW, 1).await;
                let mut now = account.take();
                now.longest = now.longest.max(asked.elapsed());
                match answer {
                    Ok(verdict) => {
                        assert!(verdict.decision.is_allowed());
                        now.granted += 1;
                        granted[key].set(granted[key].get() + 1);
                    }
                    Err(error) => {
                        now.failed += 1;
                        now.last_error = Some(error);
                    }
                }
                account.set(now);
                if stop.get() && turn >= first + self.keys.len() {
                    break;
                }
                tokio::task::yield_now().await; // an error may come without a pause
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
        for (key, granted) in self.keys.iter().zip(granted) {
            let left = self.left(key).await;
            account.beyond += (granted.get() + left).saturating_sub(LIMIT);
            account.lost += LIMIT.saturating_sub(granted.get() + left);
        }
        account
    }

    /// The units that are left of a key.
    pub async fn left(&self, key: &str) -> u64 {
        let key = on(&self.policy, key);
        let left = async || self.stores[0].operate(&key, NOW, 0).await;
        let began = Instant::now();
        loop {
            match left().await {
                Ok(verdict) => return verdict.decision.remaining(),
                Err(error) => assert!(began.elapsed() < Duration::from_secs(30), "{error}"),
            }
            tokio::task::yield_now().await;
        }
    }

    /// Waits until all keys are decided again.
    pub async fn recovers(&self) {
        for key in &self.keys {
            self.left(key).await;
        }
    }
}
