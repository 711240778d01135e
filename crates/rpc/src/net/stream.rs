//! The bytes of a connection: TCP, or TLS on top of it.

use super::peer::Peer;
use std::io::{self, Write};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

/// TCP whose reads are driven by one runtime, which may change, and whose writes need none unless the other side takes its time.
pub struct Tcp {
    peer: Arc<Peer>,
    read: TcpStream,
    /// While the other side takes nothing: what waits for it.
    blocked: Option<TcpStream>,
}

impl Tcp {
    /// The bytes of a connection, read on the runtime that the caller is in.
    pub fn new(peer: Arc<Peer>) -> io::Result<Tcp> {
        let read = TcpStream::from_std(peer.tcp().try_clone()?)?;
        Ok(Tcp { peer, read, blocked: None })
    }

    /// From here on it is read on the runtime that the caller is in.
    fn move_here(&mut self) -> io::Result<()> {
        self.read = TcpStream::from_std(self.peer.tcp().try_clone()?)?;
        Ok(())
    }
}

impl AsyncRead for Tcp {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let tcp = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut tcp.read).poll_read(cx, buffer))?;
        let have = buffer.filled().len() - before;
        Poll::Ready(if have == 0 { Ok(()) } else { tcp.peer.note_heard(have) })
    }
}

impl AsyncWrite for Tcp {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Tcp { peer, blocked, .. } = self.get_mut();
        loop {
            match peer.tcp().write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                done => {
                    *blocked = None;
                    done.as_ref().iter().for_each(|taken| peer.note_taken(**taken));
                    return Poll::Ready(done);
                }
            }
            let waits = match blocked {
                Some(waits) => waits,
                None => {
                    let _entered = super::runtime()?.enter();
                    blocked.insert(TcpStream::from_std(peer.tcp().try_clone()?)?)
                }
            };
            ready!(waits.poll_write_ready(cx))?;
            // The system says so now and then when it is not: asked again, it waits.
            match waits.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => {
                    done.as_ref().iter().for_each(|taken| peer.note_taken(**taken));
                    return Poll::Ready(done);
                }
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.peer.tcp().shutdown(Shutdown::Write))
    }
}

/// TCP, or TLS on top of it.
pub enum Stream {
    /// Plain text.
    Plain(Tcp),
    /// TLS.
    Tls(Box<TlsStream<Tcp>>),
}

impl Stream {
    /// From here on it is read on the runtime that the caller is in.
    pub fn move_here(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(tcp) => tcp.move_here(),
            Stream::Tls(tls) => match tls.as_mut() {
                TlsStream::Client(tls) => tls.get_mut().0.move_here(),
                TlsStream::Server(tls) => tls.get_mut().0.move_here(),
            },
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_read(cx, buffer),
            Stream::Tls(tls) => Pin::new(tls).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Stream::Tls(tls) => Pin::new(tls).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Stream::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Stream::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}
