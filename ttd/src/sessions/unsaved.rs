//! The sessions that changed since they were stored. Each is kept here until it is known to be stored, so that nothing is
//! lost by a disk that fails, nor when the task that stores them is stopped in the middle.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tt_proto::Error;
use tt_store::StoredSession;

use super::session::SessionKey;
use super::{Sessions, to_stored};

#[derive(Debug, Default)]
pub(super) struct Unsaved {
    changed: Mutex<Changed>,
    /// Told when there is something to store.
    added: Notify,
    /// One at a time, so that an older state of a session is never stored over a newer one.
    saving: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Changed {
    /// Each with the number of its last change.
    sessions: BTreeMap<SessionKey, u64>,
    changes: u64,
}

impl Unsaved {
    pub(super) fn add(&self, keys: impl IntoIterator<Item = SessionKey>) {
        let mut changed = self.lock();
        changed.changes += 1;
        let number = changed.changes;
        changed.sessions.extend(keys.into_iter().map(|key| (key, number)));
        drop(changed);
        self.added.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Changed> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sessions {
    pub fn has_unsaved(&self) -> bool {
        !self.0.unsaved.lock().sessions.is_empty()
    }

    /// Resolves when sessions changed since it last did.
    pub async fn unsaved_added(&self) {
        self.0.unsaved.added.notified().await;
    }

    /// Stores every session that changed until now, all of them at once: a process that went on to another conversation
    /// changes two. What cannot be stored stays unsaved.
    pub async fn save<F>(&self, store: impl FnOnce(Vec<StoredSession>) -> F) -> Result<(), Error>
    where
        F: Future<Output = Result<(), Error>>,
    {
        let _alone = self.0.unsaved.saving.lock().await;
        let changed = self.0.unsaved.lock().sessions.clone();
        // One that was forgotten meanwhile is not stored.
        let rows: Vec<StoredSession> = {
            let registry = self.lock();
            changed.keys().filter_map(|key| registry.get(key)).map(to_stored).collect()
        };
        if !rows.is_empty() {
            store(rows).await?;
        }
        self.0.unsaved.lock().sessions.retain(|key, number| changed.get(key) != Some(number));
        Ok(())
    }

    /// Forgets a session, here and where it is stored.
    pub async fn forget<F>(&self, key: SessionKey, erase: impl FnOnce(SessionKey) -> F) -> Result<(), Error>
    where
        F: Future<Output = Result<(), Error>>,
    {
        let _alone = self.0.unsaved.saving.lock().await;
        self.lock().forget(&key);
        erase(key).await
    }
}
