//! The response to a request, once its policies have decided.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::Response;
use http_body::Body;
use pin_project_lite::pin_project;
use tidegate_http::AnswerEnd;

use super::body::ResponseBody;
use super::grpc;
use super::limit::Passed;
use crate::http_message;

type Answer<R, E> = Result<Response<ResponseBody<R>>, E>;

pin_project! {
    /// The response to a request: that of the service, whose future is `F`, or a refusal.
    ///
    /// It is boxed only if the store must be waited for.
    pub struct ResponseFuture<F, R, E> {
        #[pin]
        state: State<F, R, E>,
    }
}

pin_project! {
    #[project = StateNow]
    enum State<F, R, E> {
        /// The store decides, and then the service answers.
        Waiting { answer: Pin<Box<dyn Future<Output = Answer<R, E>> + Send>> },
        Passed { #[pin] response: F, passed: Passed, answers_head: bool },
        Refused { refusal: Option<tidegate_http::Response>, is_grpc: bool },
    }
}

impl<F, R, E> ResponseFuture<F, R, E> {
    pub(super) fn waiting(answer: impl Future<Output = Answer<R, E>> + Send + 'static) -> Self {
        Self { state: State::Waiting { answer: Box::pin(answer) } }
    }

    /// `response` is the future of the service.
    pub(super) fn passed(response: F, passed: Passed, answers_head: bool) -> Self {
        Self { state: State::Passed { response, passed, answers_head } }
    }

    pub(super) fn refused(refusal: tidegate_http::Response, is_grpc: bool) -> Self {
        Self { state: State::Refused { refusal: Some(refusal), is_grpc } }
    }
}

impl<F, R, E> Future for ResponseFuture<F, R, E>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: Body,
{
    type Output = Answer<R, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateNow::Waiting { answer } => answer.as_mut().poll(context),
            StateNow::Passed { response, passed, answers_head } => {
                Poll::Ready(passed.answer(ready!(response.poll(context)), *answers_head))
            }
            StateNow::Refused { refusal, is_grpc } => {
                let refusal = refusal.take().unwrap_or_else(|| {
                    tidegate_http::internal_error("the response was taken before".to_owned())
                });
                let refusal = if *is_grpc { grpc::refusal(refusal) } else { refusal };
                Poll::Ready(Ok(http_message::response(refusal, ResponseBody::refusal)))
            }
        }
    }
}

impl Passed {
    /// The response of the service, with the fields about the limits.
    fn answer<R: Body, E>(
        &mut self,
        answer: Result<Response<R>, E>,
        answers_head: bool,
    ) -> Answer<R, E> {
        let mut held = self.held.take();
        let mut response = answer.inspect_err(|_| {
            held.iter_mut().for_each(|held| held.end(AnswerEnd::Failed));
        })?;
        for (name, value) in self.fields.drain(..).filter_map(http_message::header) {
            // the fields are lists, which may have the limits of another layer
            response.headers_mut().append(name, value);
        }
        held.iter_mut().for_each(|held| held.answered(&response));
        Ok(response.map(|body| ResponseBody::passed(body, held, answers_head)))
    }
}
