//! A connection whose client must read its answers in time.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A stream whose writes fail when an answer has waited for too long.
///
/// The time runs from the first write that has to wait until the next flush. The server flushes after
/// each answer. So a client that reads a byte now and then gains no time, as it would if each write had
/// its own timeout.
#[derive(Debug)]
pub(super) struct Stream<S> {
    inner: S,
    write_timeout: Duration,
    /// The timeout that runs while an answer waits.
    overdue: Option<Pin<Box<Sleep>>>,
}

impl<S> Stream<S> {
    pub(super) const fn new(inner: S, write_timeout: Duration) -> Self {
        Self { inner, write_timeout, overdue: None }
    }

    fn timed<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_pending() {
            let overdue = self.overdue.get_or_insert_with(|| Box::pin(sleep(self.write_timeout)));
            return overdue.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()));
        }
        polled
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.timed(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write_vectored(context, slices);
        self.timed(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_flush(context);
        let polled = self.timed(context, polled);
        if polled.is_ready() {
            self.overdue = None;
        }
        polled
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_shutdown(context);
        self.timed(context, polled)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_has_the_whole_timeout_and_no_more() {
        let (mut client, server) = duplex(1);
        let mut server = Stream::new(server, Duration::from_secs(10));
        // writing four bytes takes 9 s, twice: each answer has its own timeout
        for _ in 0..2 {
            let answer = async {
                server.write_all(b"1234").await?;
                server.flush().await
            };
            let taken = async {
                for _ in 0..4 {
                    tokio::time::sleep(Duration::from_secs(3)).await;
                    client.read_u8().await.unwrap();
                }
            };
            let (written, ()) = tokio::join!(answer, taken);
            written.unwrap();
        }
        // a client that reads a byte every 3 s does not extend the timeout
        let taken = async {
            loop {
                tokio::time::sleep(Duration::from_secs(3)).await;
                client.read_u8().await.unwrap();
            }
        };
        let started = tokio::time::Instant::now();
        let error = tokio::select! {
            written = server.write_all(&[0; 100]) => written.unwrap_err(),
            () = taken => unreachable!(),
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(started.elapsed().as_secs(), 10);
    }
}
