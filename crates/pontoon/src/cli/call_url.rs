//! `pontoon call --url`: a tool of a bridge or another server that runs, and the files that it left there.

use std::fs;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body_util::BodyExt;
use hyper::body::Body;
use hyper::{HeaderMap, Method};
use pontoon_supervise::plain_text;
use pontoon_wire::Message;
use serde_json::Value;

use super::call::{make_call, print, request};
use super::elsewhere::{Elsewhere, ShownArgs, as_web_socket, with_url};
use super::new_file::new_file;
use super::question::TypedAnswers;
use super::terminal::{fail, tell};
use super::typed_words::pairs;
use super::waiting::WaitingLine;
use crate::back::remote::dial::Dialer;
use crate::back::remote::http::pool::HttpPool;
use crate::config::{AppPlace, Endpoint};
use crate::errors::chain;

/// The longest file that is fetched, in bytes.
const LONGEST: u64 = 1 << 30;

/// How long the fetching of one file may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// What is called there, and how.
pub(super) struct UrlCall<'a> {
    pub(super) tool: &'a str,
    pub(super) arguments: &'a [String],
    pub(super) answers: &'a [String],
    /// Whether the files of the answer are fetched.
    pub(super) saves: bool,
    pub(super) as_json: bool,
    /// Whether the command prints errors and results alone.
    pub(super) is_quiet: bool,
}

/// Calls a tool of the server at an address, and prints what it gives.
pub(super) fn run(url: &str, shown: &ShownArgs, call: &UrlCall<'_>) -> ExitCode {
    let is_quiet = call.is_quiet;
    with_url(url, shown, is_quiet, async |there| {
        let (arguments, answers) = (pairs(call.arguments)?, pairs(call.answers)?);
        let request = request(&there.catalog, call.tool, &arguments, is_quiet)?;
        let mut answers = TypedAnswers::new(answers);
        let client = Arc::clone(&there.client);
        let entry = &there.single.entry;
        let line =
            WaitingLine::begin(format!("waiting for the result of {:?}", call.tool), is_quiet);
        let asked = (call.tool, request);
        let answered = make_call(entry, &there.catalog, client, asked, &mut answers, &line).await;
        drop(line);
        let (answer, _) = answered?;
        let code = print(&answer, call.as_json);
        if let Some(unused) = answers.unused() {
            tell(&format!("warning: {unused}"));
        }
        match call.saves && !save(there, &answer, is_quiet).await {
            true => Ok(ExitCode::FAILURE),
            false => Ok(code),
        }
    })
}

/// Fetches the files that an answer links to. Whether all of them are here.
async fn save(there: &Elsewhere<'_>, answer: &Message, is_quiet: bool) -> bool {
    let mut is_whole = true;
    for link in links(answer) {
        let fetched = tokio::time::timeout(PATIENCE, fetch(there, &link)).await;
        let late = || Err(format!("it did not come within {} minutes", PATIENCE.as_secs() / 60));
        match fetched.unwrap_or_else(|_| late()) {
            Ok(_) if is_quiet => {}
            Ok(to) => tell(&format!("saved {}", plain_text(to))),
            Err(why) => {
                is_whole = false;
                fail(&format!("{} was not saved: {why}", plain_text(link.uri)));
            }
        }
    }
    is_whole
}

/// A file of an answer.
struct FileLink {
    uri: String,
    name: String,
}

fn links(answer: &Message) -> Vec<FileLink> {
    let answer: Value = serde_json::from_slice(answer.text()).unwrap_or_default();
    let blocks = answer["result"]["content"].as_array().into_iter().flatten();
    let links = blocks.filter(|block| block["type"] == "resource_link");
    let text = |block: &Value, name: &str| block[name].as_str().unwrap_or_default().to_owned();
    links.map(|block| FileLink { uri: text(block, "uri"), name: text(block, "name") }).collect()
}

/// Fetches one file, with what the server itself is shown, and says what it is called here.
async fn fetch(there: &Elsewhere<'_>, link: &FileLink) -> Result<String, String> {
    let endpoint = endpoint_of(there, &link.uri)?;
    let app = there.server.app.as_ref().ok_or("there is no address")?;
    let dialer = Dialer::new(there.single.token_reader());
    let pool = HttpPool::new(app.target(endpoint, app.token.clone()), dialer);
    let asked = pool.request(Method::GET, &HeaderMap::new(), &Bytes::new()).await;
    // The connection lives as long as its body is read.
    let (response, _connection) = asked.map_err(|error| chain(&error))?;
    if !response.status().is_success() {
        return Err(format!("it answered HTTP {}", response.status().as_u16()));
    }
    let (file, to) = new_file(&link.name).map_err(|error| error.to_string())?;
    let unfinished = Unfinished(Some(&to));
    take_whole(response.into_body(), file, LONGEST).await?;
    unfinished.keep();
    Ok(to)
}

/// A file that is not whole yet, and goes if it never is.
struct Unfinished<'n>(Option<&'n str>);

impl Unfinished<'_> {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(name) = self.0 {
            let _gone = fs::remove_file(name);
        }
    }
}

/// Writes all of a body, if it has no more bytes than `longest`.
async fn take_whole<B>(body: B, mut file: impl Write, longest: u64) -> Result<(), String>
where
    B: Body<Data: Buf, Error: std::fmt::Display>,
{
    let mut body = std::pin::pin!(body);
    let mut room = longest;
    let too_long = || format!("it is longer than {longest} bytes");
    // One that says so is not even begun.
    if body.size_hint().lower() > room {
        return Err(too_long());
    }
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| format!("it did not come whole: {error}"))?;
        let Ok(part) = frame.into_data() else { continue };
        room = room.checked_sub(part.remaining() as u64).ok_or_else(too_long)?;
        std::io::copy(&mut part.reader(), &mut file)
            .map_err(|error| format!("it cannot be written: {error}"))?;
    }
    Ok(())
}

/// Where a link leads, if that is the host that was called: no other is shown a token.
fn endpoint_of(there: &Elsewhere<'_>, uri: &str) -> Result<Endpoint, String> {
    let (address, http) = as_web_socket(uri);
    let link: Endpoint = match http {
        Some(_) => address.parse().map_err(|_| "it is no address that can be fetched")?,
        None => return Err("it is no address of HTTP".to_owned()),
    };
    let called = there.server.app.as_ref().map(|app| &app.place);
    match (called, &link) {
        (
            Some(AppPlace::At(Endpoint::WebSocket { host, is_secure, .. })),
            Endpoint::WebSocket { host: linked, is_secure: links_securely, .. },
        ) if host == linked && is_secure == links_securely => Ok(link),
        _ => {
            Err("it is at another host than the one that was called; fetch it with curl".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{Full, StreamBody};
    use hyper::body::Frame;

    use super::*;

    #[tokio::test]
    async fn a_file_is_fetched_up_to_a_bound() {
        let whole = |text: &'static [u8]| Full::new(Bytes::from_static(text));
        let mut file = Vec::new();
        assert_eq!(take_whole(whole(b"1234"), &mut file, 4).await, Ok(()));
        assert_eq!(file, b"1234");
        // One that says how long it is, and one that never ends and does not.
        let refused = Err("it is longer than 4 bytes".to_owned());
        let mut file = Vec::new();
        assert_eq!(take_whole(whole(b"12345"), &mut file, 4).await, refused);
        let endless = futures_util::stream::repeat_with(|| {
            Ok::<_, std::convert::Infallible>(Frame::data(Bytes::from_static(b"123")))
        });
        assert_eq!(take_whole(StreamBody::new(endless), &mut file, 4).await, refused);
        assert_eq!(file, b"123");
    }
}
