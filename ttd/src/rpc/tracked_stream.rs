//! The stream of a connection, which counts what goes over it and is read only while there is room for what comes.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;

use super::connections::{Connection, Connections, Vacancy};
use super::debt::Frames;

/// The stream of an open connection. Its entry is dropped first, so that no descriptor is used after it was closed.
#[derive(Debug)]
pub struct TrackedStream {
    entry: Entry,
    stream: UnixStream,
    frames: Frames,
    /// The end of what was read before it became a WebSocket.
    last_bytes: [u8; 4],
    /// What was read and may not be handed on yet: the head of a large request.
    held: Vec<u8>,
    /// Given back last, after the descriptor.
    _vacancy: Vacancy,
}

impl TrackedStream {
    pub(super) fn new(
        connections: Connections,
        connection: Arc<Connection>,
        stream: UnixStream,
        vacancy: Vacancy,
    ) -> Self {
        Self {
            entry: Entry { connections, connection },
            stream,
            frames: Frames::default(),
            last_bytes: [0; 4],
            held: Vec::new(),
            _vacancy: vacancy,
        }
    }

    /// Looks at what was read. Returns whether a large request begins in it.
    fn scan(&mut self, bytes: &[u8]) -> io::Result<bool> {
        if self.entry.connection.is_upgraded() {
            // Bytes that came with the request for the upgrade would be unknown here.
            return if &self.last_bytes == b"\r\n\r\n" {
                Ok(self.frames.scan(bytes))
            } else {
                Err(ErrorKind::InvalidData.into())
            };
        }
        for byte in bytes.iter().skip(bytes.len().saturating_sub(4)) {
            self.last_bytes.rotate_left(1);
            self.last_bytes[3] = *byte;
        }
        Ok(false)
    }
}

#[derive(Debug)]
struct Entry {
    connections: Connections,
    connection: Arc<Connection>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.connections.end(&self.connection);
    }
}

impl AsyncRead for TrackedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        std::task::ready!(self.entry.connection.poll_readable(cx));
        if self.entry.connection.is_closing() {
            return Poll::Ready(Ok(()));
        }
        if !self.held.is_empty() {
            let fits = self.held.len().min(buf.remaining());
            buf.put_slice(&self.held[..fits]);
            self.held.drain(..fits);
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        std::task::ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let read = &buf.filled()[before..];
        let large = self.scan(read)?;
        self.entry.connection.note_read(read.len(), large);
        if large && self.entry.connection.poll_incoming(cx).is_pending() {
            self.held = read.to_vec();
            buf.set_filled(before);
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TrackedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.entry.connection.wrote(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.entry.connection.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
