//! A store for tests that can lose the answer about a hand-over that begins: it is committed, and its caller is told of an error.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{oneshot, watch};
use tt_proto::event::Event;
use tt_proto::{Error, ErrorCode, RoomId};
use tt_rules::{Decision, Needs};
use tt_store::{Loaded, Location, Maintenance, Reader, RequestKey, Store, UnitOfWork};

/// Loses the next answer once it is told to.
#[derive(Debug)]
pub(super) struct ForgetfulStore {
    pub(super) store: Arc<dyn Store>,
    pub(super) loses_next: Arc<AtomicBool>,
}

impl Store for ForgetfulStore {
    fn submit(&self, unit: Box<dyn UnitOfWork>) {
        let is_hand_over = matches!(unit.needs(), Needs::Deliveries { .. });
        if is_hand_over && self.loses_next.swap(false, Ordering::Relaxed) {
            self.store.submit(Box::new(Forgotten(unit)));
        } else {
            self.store.submit(unit);
        }
    }

    fn maintain(&self, task: Maintenance) -> oneshot::Receiver<Result<(), Error>> {
        self.store.maintain(task)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>, Error> {
        self.store.reader()
    }

    fn known_room_at(&self, paths: &mut dyn Iterator<Item = &Path>) -> Option<RoomId> {
        self.store.known_room_at(paths)
    }

    fn check(&self) -> Result<(), Error> {
        self.store.check()
    }

    fn lost(&self) -> watch::Receiver<Option<Error>> {
        self.store.lost()
    }

    fn close(&self) {
        self.store.close();
    }
}

/// A unit that is committed, and of which nobody is told so.
struct Forgotten(Box<dyn UnitOfWork>);

impl UnitOfWork for Forgotten {
    fn candidates(&self) -> Vec<PathBuf> {
        self.0.candidates()
    }

    fn locate(&mut self, existing: &HashMap<PathBuf, RoomId>) -> Location {
        self.0.locate(existing)
    }

    fn key(&self) -> Option<&RequestKey> {
        self.0.key()
    }

    fn needs(&self) -> Needs {
        self.0.needs()
    }

    fn decide(&mut self, loaded: Loaded<'_>) -> Result<Decision, Error> {
        self.0.decide(loaded)
    }

    fn answer(&mut self, decision: &mut Decision, events: &[Arc<Event>]) -> Result<Option<String>, Error> {
        self.0.answer(decision, events)
    }

    fn committed(self: Box<Self>) {
        self.0.failed(Error::new(ErrorCode::OutcomeUnknown, "the disk did not answer"));
    }

    fn repeated(self: Box<Self>, answer: String) {
        self.0.repeated(answer);
    }

    fn failed(self: Box<Self>, error: Error) {
        self.0.failed(error);
    }
}
