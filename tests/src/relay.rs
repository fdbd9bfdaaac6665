//! A socket between clients and the daemon, on which a test cuts connections at chosen moments.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::Home;

/// What happens after the daemon has said something, which is passed on first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    GoOn,
    /// Hangs up on both ends.
    Cut,
    /// Hangs up on the client. The daemon does not notice before [`Act::EndCut`].
    CutClient,
    /// Lets the daemon notice all that was cut.
    EndCut,
}

/// Connections that were opened and lead nowhere, and ends towards the daemon whose clients were cut.
type Kept = Arc<Mutex<Vec<UnixStream>>>;

/// A socket for clients of the daemon.
#[derive(Debug)]
pub struct Relay {
    /// For `TALKING_STICK_SOCKET`.
    pub socket: PathBuf,
    stalled: Kept,
}

impl Relay {
    /// Starts to forward. `opens` is asked for each connection, in order, whether it leads anywhere; `hears` is told all that the
    /// daemon has said on a connection so far.
    #[track_caller]
    pub fn start(
        home: &Home,
        opens: impl Fn() -> bool + Send + 'static,
        hears: impl Fn(&[u8]) -> Act + Send + Sync + 'static,
    ) -> Self {
        let dir = home.path().join("relay");
        let made = std::fs::DirBuilder::new().mode(0o700).create(&dir);
        made.unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        let (socket, daemon) = (dir.join("ttd.sock"), home.paths().socket);
        let listener = UnixListener::bind(&socket).unwrap_or_else(|e| panic!("{}: {e}", socket.display()));
        let (stalled, cut, hears) = (Kept::default(), Kept::default(), Arc::new(hears));
        let relay = Self { socket, stalled: stalled.clone() };
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if !opens() {
                    keep(&stalled, client);
                    continue;
                }
                let Ok(daemon) = UnixStream::connect(&daemon) else { continue };
                let (Ok(requests), Ok(to_daemon)) = (client.try_clone(), daemon.try_clone()) else { continue };
                let (cut, hears) = (cut.clone(), hears.clone());
                // Set before the client can hear what it is cut for, so that nothing it says afterwards gets through.
                let (ends, is_cut) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(false)));
                let (ended, cut_client) = (ends.clone(), is_cut.clone());
                std::thread::spawn(move || {
                    forward(requests, &to_daemon, &ended);
                    if !*cut_client.lock().unwrap_or_else(PoisonError::into_inner) {
                        let _ = to_daemon.shutdown(Shutdown::Both);
                    }
                });
                std::thread::spawn(move || {
                    let daemon_end = daemon.try_clone();
                    let act = copy(daemon, &client, |heard| match hears(heard) {
                        Act::EndCut => {
                            let mut cut = cut.lock().unwrap_or_else(PoisonError::into_inner);
                            cut.drain(..).for_each(|daemon| drop(daemon.shutdown(Shutdown::Both)));
                            Act::GoOn
                        }
                        Act::GoOn => Act::GoOn,
                        act => {
                            *is_cut.lock().unwrap_or_else(PoisonError::into_inner) = act == Act::CutClient;
                            ends.store(true, Ordering::SeqCst);
                            act
                        }
                    });
                    if let (Act::CutClient, Ok(daemon)) = (act, daemon_end) {
                        keep(&cut, daemon);
                    }
                    let _ = client.shutdown(Shutdown::Both);
                });
            }
        });
        relay
    }

    /// Hangs up on the clients whose connections lead nowhere.
    pub fn end_stalled(&self) {
        self.stalled.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

fn keep(kept: &Kept, stream: UnixStream) {
    kept.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
}

/// Passes on what a client says, until it is cut.
fn forward(mut from: UnixStream, mut to: &UnixStream, ended: &AtomicBool) {
    let mut piece = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut piece) {
        if ended.load(Ordering::SeqCst) || to.write_all(&piece[..length]).is_err() {
            return;
        }
    }
}

/// Passes on what is read until it ends or is to be cut. Returns why it ended.
fn copy(mut from: UnixStream, mut to: &UnixStream, hears: impl Fn(&[u8]) -> Act) -> Act {
    let (mut heard, mut piece) = (Vec::new(), [0; 4096]);
    while let Ok(length @ 1..) = from.read(&mut piece) {
        heard.extend_from_slice(&piece[..length]);
        let act = hears(&heard);
        if to.write_all(&piece[..length]).is_err() {
            break;
        }
        if act != Act::GoOn {
            return act;
        }
    }
    Act::Cut
}
