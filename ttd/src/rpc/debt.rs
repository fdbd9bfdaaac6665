//! Bytes under way, bounded: requests that are being read or handled, and answers that were not yet written.
//!
//! A connection owes the bytes of its answers until its client has taken them. While it owes much it makes no further large
//! answer, and its streams stand still; what they have to say is in the log. If all connections together owe too much, the one
//! that owes most and whose client does not read is closed: it would keep the others waiting.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::connections::Connection;

/// What is set aside for a large answer while it is made: a page of the log, or the state of a room with its handoffs.
const LARGE_ANSWER_BYTES: usize = 1024 * 1024;

/// A connection that owes more than this makes no further large answer.
const MAX_OWED: usize = 256 * 1024;

/// A connection that owes more than this is sent nothing more of its streams.
const MAX_OWED_BY_STREAMS: usize = 64 * 1024;

/// The most that all connections together owe, with what is set aside.
const MAX_OWED_IN_ALL: usize = 8 * 1024 * 1024;

/// How long to wait for a connection that was closed to pay before another one is.
const CLOSE_DELAY: Duration = Duration::from_millis(50);

/// What is read of a request before it counts as a large one.
pub(super) const SMALL_REQUEST_BYTES: usize = 8 * 1024;

/// Large requests that are read or handled at once.
const MAX_LARGE_REQUESTS: usize = 4;

/// A large request that takes longer than this is given up if another one waits.
const LARGE_REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// What one connection owes.
#[derive(Debug, Default)]
pub(super) struct Debt {
    bytes: Mutex<Bytes>,
    paid: Notify,
}

#[derive(Debug, Default)]
struct Bytes {
    owed: usize,
    set_aside: usize,
    /// The connection has ended and owes nothing any more.
    ended: bool,
}

/// What all connections owe.
#[derive(Debug, Default)]
pub(super) struct Total {
    bytes: AtomicUsize,
    paid: Notify,
}

impl Total {
    fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    fn subtract(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::AcqRel);
        self.paid.notify_waiters();
    }
}

impl Debt {
    pub(super) fn owed(&self) -> usize {
        self.lock().owed
    }

    /// Adds an answer that is to be written.
    pub(super) fn owe(&self, total: &Total, bytes: usize) {
        let mut debt = self.lock();
        if !debt.ended {
            debt.owed += bytes;
            total.add(bytes);
        }
    }

    /// Takes off what was written.
    pub(super) fn pay(&self, total: &Total, bytes: usize) {
        let mut debt = self.lock();
        let paid = debt.owed.min(bytes);
        if paid > 0 {
            debt.owed -= paid;
            total.subtract(paid);
            drop(debt);
            self.paid.notify_waiters();
        }
    }

    /// Takes off everything: nobody will be paid.
    pub(super) fn end(&self, total: &Total) {
        let mut debt = self.lock();
        debt.ended = true;
        total.subtract(std::mem::take(&mut debt.owed) + std::mem::take(&mut debt.set_aside));
        drop(debt);
        self.paid.notify_waiters();
    }

    fn try_set_aside(&self, total: &Total) -> bool {
        let mut debt = self.lock();
        if !debt.ended && debt.owed + debt.set_aside > MAX_OWED {
            return false;
        }
        if !debt.ended {
            debt.set_aside += LARGE_ANSWER_BYTES;
            total.add(LARGE_ANSWER_BYTES);
        }
        true
    }

    fn give_back(&self, total: &Total) {
        let mut debt = self.lock();
        let bytes = debt.set_aside.min(LARGE_ANSWER_BYTES);
        debt.set_aside -= bytes;
        total.subtract(bytes);
        drop(debt);
        self.paid.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, Bytes> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Room for a large answer, for as long as this lives.
#[derive(Debug)]
pub struct AnswerRoom(Arc<Connection>);

impl AnswerRoom {
    /// Waits until a connection may make a large answer.
    pub(super) async fn wait_for(connection: &Arc<Connection>) -> Self {
        let (debt, total) = (&connection.debt, connection.all.total());
        loop {
            let paid = debt.paid.notified();
            tokio::pin!(paid);
            paid.as_mut().enable();
            make_room(connection).await;
            if debt.try_set_aside(total) {
                return Self(connection.clone());
            }
            paid.await;
        }
    }
}

impl Drop for AnswerRoom {
    fn drop(&mut self) {
        self.0.debt.give_back(self.0.all.total());
    }
}

/// Waits until a connection may be sent more of its streams.
pub(super) async fn wait_to_stream(connection: &Connection) {
    loop {
        let paid = connection.debt.paid.notified();
        tokio::pin!(paid);
        paid.as_mut().enable();
        if connection.debt.owed() <= MAX_OWED_BY_STREAMS {
            return;
        }
        paid.await;
    }
}

/// Waits until all connections together owe little enough. Those whose clients do not read are closed, the largest debt first.
async fn make_room(connection: &Connection) {
    let total = connection.all.total();
    loop {
        let paid = total.paid.notified();
        tokio::pin!(paid);
        paid.as_mut().enable();
        if total.bytes.load(Ordering::Acquire) + LARGE_ANSWER_BYTES <= MAX_OWED_IN_ALL {
            return;
        }
        connection.all.close_largest_debtor();
        let _ = tokio::time::timeout(CLOSE_DELAY, paid).await;
    }
}

/// The large requests that are read or handled now, by connection.
#[derive(Debug, Default)]
pub(super) struct LargeRequests(Mutex<Large>);

#[derive(Debug, Default)]
struct Large {
    since: HashMap<u64, Instant>,
    waiting: Vec<Waker>,
    /// Somebody will look whether they take too long.
    timer: bool,
}

impl LargeRequests {
    /// Waits until a connection may read a large request; it has one at most. If others have been at it for too long, the
    /// oldest is returned, to be closed.
    pub(super) fn poll_begin(self: &Arc<Self>, id: u64, cx: &Context<'_>) -> (Poll<()>, Option<u64>) {
        let mut large = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if large.since.len() < MAX_LARGE_REQUESTS && !large.since.contains_key(&id) {
            large.since.insert(id, Instant::now());
            return (Poll::Ready(()), None);
        }
        large.waiting.push(cx.waker().clone());
        let oldest = large.since.iter().min_by_key(|(_, since)| **since);
        let oldest = oldest.filter(|(_, since)| since.elapsed() >= LARGE_REQUEST_TIMEOUT).map(|(id, _)| *id);
        if !std::mem::replace(&mut large.timer, true) {
            let this = self.clone();
            tokio::spawn(async move {
                tokio::time::sleep(LARGE_REQUEST_TIMEOUT).await;
                let mut large = this.0.lock().unwrap_or_else(PoisonError::into_inner);
                large.timer = false;
                large.waiting.drain(..).for_each(Waker::wake);
            });
        }
        (Poll::Pending, oldest)
    }

    /// A large request was handled, or its connection has ended.
    pub(super) fn end(&self, id: u64) {
        let mut large = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if large.since.remove(&id).is_some() {
            large.waiting.drain(..).for_each(Waker::wake);
        }
    }
}

/// Follows the frames of a WebSocket, to know of a large one before its reader does: that sets aside memory for all of a frame as
/// soon as it has seen its head.
#[derive(Debug, Default)]
pub(super) struct Frames {
    head: [u8; 14],
    have: usize,
    /// What is still to come of the payload.
    payload: u64,
}

impl Frames {
    /// Takes the next bytes of the stream. Returns whether a large frame begins in them.
    pub(super) fn scan(&mut self, bytes: &[u8]) -> bool {
        let (mut rest, mut large) = (bytes, false);
        while !rest.is_empty() {
            if self.payload > 0 {
                let taken = usize::try_from(self.payload).unwrap_or(usize::MAX).min(rest.len());
                self.payload -= taken as u64;
                rest = &rest[taken..];
                continue;
            }
            self.head[self.have] = rest[0];
            self.have += 1;
            rest = &rest[1..];
            if let Some(payload) = self.payload_length() {
                (self.payload, self.have) = (payload, 0);
                large |= payload > SMALL_REQUEST_BYTES as u64;
            }
        }
        large
    }

    /// The length of the payload, once the whole head is there.
    fn payload_length(&self) -> Option<u64> {
        let head = &self.head[..self.have];
        let second = *head.get(1)?;
        let (short, mask) = (second & 0x7f, if second & 0x80 > 0 { 4 } else { 0 });
        let extended = match short {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        if head.len() < 2 + extended + mask {
            return None;
        }
        match extended {
            0 => Some(u64::from(short)),
            _ => Some(head[2..2 + extended].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(length: usize) -> Vec<u8> {
        let mut frame = vec![0x81];
        match length {
            0..=125 => frame.push(0x80 | length as u8),
            126..=0xffff => frame.extend([&[0xfe], (length as u16).to_be_bytes().as_slice()].concat()),
            _ => frame.extend([&[0xff], (length as u64).to_be_bytes().as_slice()].concat()),
        }
        frame.extend([0; 4]);
        frame.extend(vec![0xff; length]);
        frame
    }

    #[test]
    fn a_large_frame_is_seen_with_its_head_however_the_stream_is_cut() {
        let lengths = [0, 1, 125, 126, SMALL_REQUEST_BYTES, SMALL_REQUEST_BYTES + 1, 70_000, 5];
        let stream: Vec<u8> = lengths.iter().flat_map(|length| frame(*length)).collect();
        for cut in [1, 2, 7, 1000, stream.len()] {
            let mut frames = Frames::default();
            let mut seen = 0;
            for piece in stream.chunks(cut) {
                seen += usize::from(frames.scan(piece));
            }
            assert_eq!(seen, if cut == stream.len() { 1 } else { 2 }, "{cut}");
            assert_eq!((frames.have, frames.payload), (0, 0));
        }
    }
}
