//! A collector of OpenTelemetry for tests: it takes spans over HTTP, or does not, and says what it got.
//!
//! What it got is read by OpenTelemetry's own decoder.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::rig::wait_until;

/// How long spans may take to come: they are sent some seconds after the first of them.
const SOON: Duration = Duration::from_secs(20);

/// How it answers.
#[derive(Debug, Clone)]
pub enum Manner {
    /// With these statuses, one for each request, and with 200 from then on.
    Answers(Vec<u16>),
    /// Not at all.
    Silent,
}

/// One request that it got.
#[derive(Debug, Clone)]
pub struct Export {
    /// The first line.
    pub line: String,
    /// The headers, their names in lower case.
    pub headers: HashMap<String, String>,
    /// The body as it came.
    pub body: Vec<u8>,
    /// What it was answered with.
    pub status: u16,
}

impl Export {
    /// The body, decoded.
    ///
    /// # Panics
    ///
    /// When it is no request of OTLP.
    pub fn decoded(&self) -> ExportTraceServiceRequest {
        ExportTraceServiceRequest::decode(&self.body[..]).expect("a request of OTLP")
    }
}

/// A collector that listens on this machine until it is dropped.
#[derive(Debug)]
pub struct Collector {
    /// Where it listens.
    pub address: SocketAddr,
    got: Arc<Mutex<Vec<Export>>>,
    is_over: Arc<AtomicBool>,
    listening: Option<JoinHandle<()>>,
}

impl Collector {
    /// One of this manner.
    ///
    /// # Panics
    ///
    /// When it cannot listen.
    pub fn start(manner: Manner) -> Self {
        Self::listen(manner, None)
    }

    /// One that takes everything, inside TLS.
    ///
    /// # Panics
    ///
    /// When it cannot listen.
    pub fn start_secure(tls: Arc<ServerConfig>) -> Self {
        Self::listen(Manner::Answers(Vec::new()), Some(tls))
    }

    fn listen(manner: Manner, tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let (got, is_over) = (Arc::<Mutex<Vec<Export>>>::default(), Arc::<AtomicBool>::default());
        let (theirs, over) = (Arc::clone(&got), Arc::clone(&is_over));
        let listening = thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if over.load(Ordering::Acquire) {
                    return;
                }
                let (manner, got) = (manner.clone(), Arc::clone(&theirs));
                let tls = tls.as_ref().map(|tls| ServerConnection::new(Arc::clone(tls)));
                // It ends with its connection, which the bridge closes when it ends.
                thread::spawn(move || match tls {
                    None => serve(stream, &manner, &got),
                    Some(tls) => {
                        let tls = tls.expect("the settings are right");
                        serve(StreamOwned::new(tls, stream), &manner, &got);
                    }
                });
            }
        });
        Self { address, got, is_over, listening: Some(listening) }
    }

    /// The value of `OTEL_EXPORTER_OTLP_ENDPOINT` for it.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests that it got so far.
    pub fn exports(&self) -> Vec<Export> {
        self.got.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The spans that it took so far.
    pub fn spans(&self) -> Vec<Span> {
        let taken = self.exports().into_iter().filter(|export| export.status == 200);
        let resources = taken.flat_map(|export| export.decoded().resource_spans);
        resources.flat_map(|it| it.scope_spans).flat_map(|it| it.spans).collect()
    }

    /// Waits until it has got so many requests.
    pub fn wait_for_exports(&self, count: usize) {
        wait_until(&format!("{count} requests came"), SOON, || self.exports().len() >= count);
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // The next connection wakes it.
        drop(TcpStream::connect(self.address));
        drop(self.listening.take().map(JoinHandle::join));
    }
}

fn serve(stream: impl Read + Write, manner: &Manner, got: &Mutex<Vec<Export>>) {
    let mut reader = BufReader::new(stream);
    while let Ok(Some(mut export)) = read(&mut reader) {
        let mut got = got.lock().unwrap_or_else(PoisonError::into_inner);
        let status = match manner {
            Manner::Answers(statuses) => statuses.get(got.len()).copied().unwrap_or(200),
            Manner::Silent => 0,
        };
        export.status = status;
        got.push(export);
        drop(got);
        let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n");
        if status != 0 && reader.get_mut().write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn read(reader: &mut impl BufRead) -> io::Result<Option<Export>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut headers = HashMap::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        let Some((name, value)) = header.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|it| it.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some(Export { line: line.trim_end().to_owned(), headers, body, status: 0 }))
}

/// What an attribute says, numbers as text.
pub fn attribute(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|it| it.key == key)?;
    match found.value.clone()? {
        AnyValue { value: Some(Value::StringValue(text)) } => Some(text),
        AnyValue { value: Some(Value::IntValue(number)) } => Some(number.to_string()),
        other => panic!("{other:?} is no text and no number"),
    }
}
