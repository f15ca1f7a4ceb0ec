//! The body of a response.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tidegate_http::AnswerEnd;

use super::held::Held;

pin_project! {
    /// The body of the service's response, or of a refusal. A request holds its lease until the body has ended or is dropped.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        passed: Option<B>,
        // of a refusal
        refusal: Option<Bytes>,
        held: Option<Box<Held>>,
    }
}

impl<B> ResponseBody<B> {
    pub(super) fn refusal(text: String) -> Self {
        let refusal = Some(Bytes::from(text)).filter(|text| !text.is_empty());
        Self { passed: None, refusal, held: None }
    }
}

impl<B: Body> ResponseBody<B> {
    /// The body of a response that nobody reads if it answers `HEAD`.
    pub(super) fn passed(body: B, mut held: Option<Box<Held>>, answers_head: bool) -> Self {
        if (answers_head || body.is_end_stream())
            && let Some(held) = &mut held
        {
            held.end(AnswerEnd::Whole);
        }
        Self { passed: Some(body), refusal: None, held }
    }
}

impl<B: Body<Data = Bytes>> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut this = self.project();
        let Some(mut body) = this.passed.as_mut().as_pin_mut() else {
            return Poll::Ready(this.refusal.take().map(|text| Ok(Frame::data(text))));
        };
        let frame = ready!(body.as_mut().poll_frame(context));
        if let Some(held) = this.held {
            match &frame {
                Some(Ok(frame)) => frame.data_ref().into_iter().for_each(|data| held.push(data)),
                Some(Err(_)) => held.end(AnswerEnd::CutOff),
                None => held.end(AnswerEnd::Whole),
            }
            // a server does not ask for the end of a body that says so by itself
            if body.is_end_stream() {
                held.end(AnswerEnd::Whole);
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.passed {
            Some(body) => body.is_end_stream(),
            None => self.refusal.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match (&self.passed, &self.refusal) {
            (Some(body), _) => body.size_hint(),
            (None, text) => {
                let length = text.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(u64::try_from(length).unwrap_or(u64::MAX))
            }
        }
    }
}
