//! Connections to one server, kept for the next request, and one request over one of them.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::HOST;
use hyper::{HeaderMap, Method, Request, Response};
use hyper_util::rt::TokioIo;

use crate::back::remote::dial::{AppCredentials, DialError, Dialer};
use crate::config::{AppTarget, Endpoint};
use crate::lock::Lock;

/// How many connections are kept that nothing uses.
const KEPT: usize = 8;

/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a request has no response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("the request failed: {0}")]
    Request(#[from] hyper::Error),
    #[error("the address makes no request: {0}")]
    Form(#[from] hyper::http::Error),
}

/// The connections to one server.
#[derive(Debug)]
pub(crate) struct HttpPool {
    target: AppTarget,
    dialer: tokio::sync::Mutex<Dialer>,
    idle: Lock<Vec<SendRequest<Full<Bytes>>>>,
}

impl HttpPool {
    /// Connections to this server, of which there is none yet. The endpoint says host, path and whether it is inside TLS.
    pub(crate) fn new(target: AppTarget, dialer: Dialer) -> Self {
        Self { target, dialer: tokio::sync::Mutex::new(dialer), idle: Lock::default() }
    }

    /// Makes a request. The connection comes back to the pool with [`HttpPool::keep`], once the body was read.
    pub(crate) async fn request(
        &self,
        method: Method,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Result<(Response<Incoming>, SendRequest<Full<Bytes>>), HttpError> {
        let shown = self.dialer.lock().await.credentials(&self.target).await?;
        while let Some(mut connection) = self.take() {
            if connection.ready().await.is_err() {
                continue;
            }
            let request = self.make(method.clone(), headers, body, &shown)?;
            match connection.send_request(request).await {
                Ok(response) => return Ok((response, connection)),
                // It was closed while nothing used it, and nothing was sent.
                Err(error) if error.is_canceled() => {}
                Err(error) => return Err(error.into()),
            }
        }
        let mut connection = self.connect().await?;
        let request = self.make(method, headers, body, &shown)?;
        Ok((connection.send_request(request).await?, connection))
    }

    /// Keeps a connection whose response was read to its end.
    pub(crate) fn keep(&self, connection: SendRequest<Full<Bytes>>) {
        let mut idle = self.idle.lock();
        if idle.len() < KEPT && !connection.is_closed() {
            idle.push(connection);
        }
    }

    fn take(&self) -> Option<SendRequest<Full<Bytes>>> {
        self.idle.lock().pop()
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, HttpError> {
        let dialing = async {
            let stream = self.dialer.lock().await.reach(&self.target).await?;
            Ok::<_, HttpError>(handshake(TokioIo::new(stream)).await?)
        };
        let dialled = tokio::time::timeout(PATIENCE, dialing).await;
        let (connection, driver) = dialled.unwrap_or(Err(DialError::Silent.into()))?;
        tokio::spawn(async move {
            if let Err(error) = driver.await {
                tracing::debug!(%error, "a connection of HTTP ended");
            }
        });
        Ok(connection)
    }

    fn make(
        &self,
        method: Method,
        headers: &HeaderMap,
        body: &Bytes,
        shown: &AppCredentials,
    ) -> Result<Request<Full<Bytes>>, HttpError> {
        let (host, path) = match &self.target.endpoint {
            Endpoint::WebSocket { host, path, is_secure } => {
                let is_usual = host.port == if *is_secure { 443 } else { 80 };
                let name = if is_usual { host.name.clone() } else { host.to_string() };
                (name, path.as_str())
            }
            _ => ("localhost".to_owned(), "/"),
        };
        let mut request = Request::builder().method(method).uri(path).header(HOST, host);
        if let Some(own) = request.headers_mut() {
            own.extend(headers.clone());
            shown.add_to(own)?;
        }
        Ok(request.body(Full::new(body.clone()))?)
    }
}
