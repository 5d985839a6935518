//! `/files/{job}/{path}`: what tools have made, for people to download.
//!
//! Whatever it is, it comes as an attachment that no browser runs as a page of ours. Only pictures may be
//! shown by pages of other origins, such as that of the chat they were made in. Which files a job offers, and whether
//! a link is good, is decided in `jobs`.

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::SystemTime;

use hyper::body::Body;
use hyper::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, LAST_MODIFIED,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, Request};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest, Sha256};

use super::super::body::ResponseBody;
use super::super::refusal::Refusal;
use super::super::response::{HttpResponse, empty};
use super::super::site::HttpSite;
use super::super::who::auth::{Area, Denied};
use super::file_body::FileBody;
use super::link::FileAddress;
use super::ranges::{Version, WantedPart, http_time, wanted};
use crate::hex::hex;
use crate::jobs::Download;

/// The one text for everything that is not there, may not be seen, or was never a file.
const NOT_FOUND: &str =
    "there is no such file here, or its link has expired: ask for it to be made again";

/// What stands as it is in `filename*`: the characters that RFC 8187 allows.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

/// Pictures that are nothing but pictures: an SVG may hold scripts, and is none of them.
const PICTURES: [&str; 4] = ["image/gif", "image/jpeg", "image/png", "image/webp"];

/// The header that says which pages may show a file.
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// What every response here says, so that nothing a tool wrote runs in a browser.
const SECURITY: [(HeaderName, &str); 5] = [
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'"),
    (REFERRER_POLICY, "no-referrer"),
    (CACHE_CONTROL, "private, no-cache"),
    (RESOURCE_POLICY, "same-origin"),
];

/// Answers a request to this path, `/files/...`, without what a proxy left before it.
///
/// # Errors
///
/// A request without a key where one is needed, or for what is not there.
pub async fn handle<B>(
    site: &HttpSite,
    request: Request<B>,
    path: &str,
) -> Result<HttpResponse, Refusal> {
    let area = Area::Files { is_signed: site.links.is_signed() };
    site.entrance.auth.check(request.headers(), area).map_err(Denied::plain)?;
    let (store, links) = (site.store.clone(), Arc::clone(&site.links));
    let address = FileAddress::parse(path, request.uri().query());
    let sending = send_file(request, address, move |wanted| {
        let query = wanted.query.as_deref();
        let is_good = links.check(&wanted.job, &wanted.path, query, SystemTime::now());
        is_good.then(|| store.open_file(&wanted.job, &wanted.path).ok()).flatten()
    });
    let response = sending.await?;
    if response.status().is_success() {
        site.metrics.downloads.bump();
        site.metrics.download_bytes.add(response.body().size_hint().exact().unwrap_or_default());
    }
    Ok(response)
}

/// Sends a file or a part of it. `open` opens the file behind an address, if its link is good; it may block.
async fn send_file<B>(
    request: Request<B>,
    address: Option<FileAddress>,
    open: impl FnOnce(&FileAddress) -> Option<Download> + Send + 'static,
) -> Result<HttpResponse, Refusal> {
    let (head, _) = request.into_parts();
    if ![Method::GET, Method::HEAD].contains(&head.method) {
        return Err(Refusal::not_allowed("only GET and HEAD are answered here", "GET, HEAD"));
    }
    let address = address.ok_or_else(not_found)?;
    let opened = tokio::task::spawn_blocking(move || {
        let download = open(&address)?;
        let version = version(&download).ok()?;
        Some((download, version))
    });
    let (download, version) = opened.await.ok().flatten().ok_or_else(not_found)?;
    Ok(send(&head.method, &head.headers, download, &version))
}

/// The state of an open file. The tag is a hash, because a client has no use for an inode.
fn version(download: &Download) -> std::io::Result<Version> {
    let facts = download.file.metadata()?;
    let mut hash = Sha256::new();
    for number in [facts.ino(), download.size] {
        hash.update(number.to_be_bytes());
    }
    for number in [facts.mtime(), facts.mtime_nsec()] {
        hash.update(number.to_be_bytes());
    }
    let tag = format!("\"{}\"", hex(&hash.finalize()[..16]));
    Ok(Version { tag, modified: http_time(download.modified, SystemTime::now()) })
}

fn send(
    method: &Method,
    headers: &HeaderMap,
    download: Download,
    version: &Version,
) -> HttpResponse {
    let Download { file, size, mime, name, .. } = download;
    let wanted = wanted(method, headers, version, size, SystemTime::now());
    let (status, part) = match wanted {
        WantedPart::Whole => (200, 0..size),
        WantedPart::Part(part) => (206, part),
        WantedPart::Nothing => (304, 0..0),
        WantedPart::Other => (412, 0..0),
        WantedPart::Beyond => (416, 0..0),
    };
    let mut response = empty(status);
    let headers = response.headers_mut();
    for (name, text) in SECURITY {
        headers.insert(name, HeaderValue::from_static(text));
    }
    headers.insert(ETAG, value(&version.tag));
    if let Some(modified) = version.modified {
        headers.insert(LAST_MODIFIED, value(&httpdate::fmt_http_date(modified)));
    }
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if PICTURES.contains(&mime) {
        headers.insert(RESOURCE_POLICY, HeaderValue::from_static("cross-origin"));
    }
    match status {
        206 => {
            let text = format!("bytes {}-{}/{size}", part.start, part.end - 1);
            headers.insert(CONTENT_RANGE, value(&text));
        }
        416 => {
            headers.insert(CONTENT_RANGE, value(&format!("bytes */{size}")));
        }
        _ => {}
    }
    if matches!(status, 200 | 206) {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(mime));
        headers.insert(CONTENT_DISPOSITION, value(&disposition(&name)));
        headers.insert(CONTENT_LENGTH, HeaderValue::from(part.end - part.start));
        if *method == Method::GET {
            *response.body_mut() = ResponseBody::File(FileBody::new(file, part));
        }
    }
    response
}

/// The header that makes a browser save a file under its name, in any script.
fn disposition(name: &str) -> String {
    // For clients that read only the plain form; nothing in it can end it.
    let is_plain = |letter: &char| {
        (letter.is_ascii_graphic() || *letter == ' ') && !['"', '\\', '%'].contains(letter)
    };
    let plain: String =
        name.chars().map(|letter| if is_plain(&letter) { letter } else { '_' }).collect();
    let encoded = utf8_percent_encode(name, ENCODED);
    format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}")
}

fn not_found() -> Refusal {
    let refusal = Refusal::plain(404, NOT_FOUND);
    SECURITY.into_iter().fold(refusal, |refusal, (name, text)| {
        refusal.with_header(name, HeaderValue::from_static(text))
    })
}

fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("only plain ASCII was put in")
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper_util::rt::TokioIo;
    use std::convert::Infallible;
    use std::fs::{self, File};
    use std::path::Path;
    use std::time::{Duration, UNIX_EPOCH};
    use tempfile::TempDir;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const JOB: &str = "0f6c1d1e-3c5b-4a5e-9d53-0a1b2c3d4e5f";
    const CHANGED: &str = "Tue, 14 Nov 2023 22:13:20 GMT";

    /// A response that was read to the end of its connection.
    struct Response {
        head: String,
        body: Vec<u8>,
    }

    impl Response {
        fn status(&self) -> &str {
            &self.head[9..12]
        }

        fn header(&self, name: &str) -> Option<&str> {
            let fields = self.head.lines().filter_map(|line| line.split_once(": "));
            fields.filter(|(field, _)| *field == name).map(|(_, value)| value).next()
        }
    }

    /// A folder with one file in it, changed in 2023.
    fn folder_with(name: &str, content: &[u8]) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        set_changed(&path, UNIX_EPOCH + Duration::from_secs(1_700_000_000));
        folder
    }

    fn set_changed(path: &Path, time: SystemTime) {
        File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    }

    /// Opens a file of a folder. `missing` bytes more than it has are promised, as for one that was
    /// cut short since. A link that ends in `?bad` is not good.
    fn open(folder: &Path, missing: u64, link: &FileAddress) -> Option<Download> {
        if link.job != JOB || link.query.as_deref() == Some("bad") {
            return None;
        }
        let file = File::open(folder.join(&link.path)).ok()?;
        let facts = file.metadata().ok().filter(fs::Metadata::is_file)?;
        Some(Download {
            file,
            size: facts.len() + missing,
            mime: "application/octet-stream",
            name: link.path.clone(),
            modified: facts.modified().ok()?,
        })
    }

    async fn ask(folder: &TempDir, line: &str, headers: &[&str]) -> Response {
        ask_for(folder, line, headers, 0).await
    }

    /// Sends a request over a connection, and reads until the server ends it.
    async fn ask_for(folder: &TempDir, line: &str, headers: &[&str], missing: u64) -> Response {
        let (mut client, server) = tokio::io::duplex(4096);
        let folder = folder.path().to_owned();
        let service = hyper::service::service_fn(move |request| {
            let folder = folder.clone();
            let open = move |link: &FileAddress| open(&folder, missing, link);
            async move {
                let uri = request.uri();
                let address = FileAddress::parse(uri.path(), uri.query());
                let sent = send_file(request, address, open).await;
                Ok::<_, Infallible>(sent.unwrap_or_else(Refusal::into_response))
            }
        });
        let serving = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(server), service);
        let serving = tokio::spawn(async move { drop(serving.await) });
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let text = format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
        client.write_all(text.as_bytes()).await.unwrap();
        let mut all = Vec::new();
        client.read_to_end(&mut all).await.unwrap();
        serving.await.unwrap();
        let end = all.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        let head = String::from_utf8(all[..end].to_vec()).unwrap();
        Response { head, body: all.split_off(end + 4) }
    }

    /// Asks for `a.bin`, which holds `0123456789`, and compares status, range and body.
    async fn check(method: &str, headers: &[&str], status: &str, range: &str, body: &[u8]) {
        let folder = folder_with("a.bin", b"0123456789");
        let found = ask(&folder, &format!("{method} /files/{JOB}/a.bin"), headers).await;
        assert_eq!(found.status(), status, "{headers:?}");
        assert_eq!(found.header("content-range").unwrap_or("-"), range, "{headers:?}");
        assert_eq!(found.body, body, "{headers:?}");
        if matches!(status, "200" | "206") && method == "GET" {
            assert_eq!(found.header("content-length"), Some(body.len().to_string().as_str()));
        }
    }

    #[tokio::test]
    async fn a_file_comes_whole_in_parts_or_not_at_all() {
        check("GET", &[], "200", "-", b"0123456789").await;
        check("GET", &["Range: bytes=2-4"], "206", "bytes 2-4/10", b"234").await;
        check("GET", &["Range: bytes=-2"], "206", "bytes 8-9/10", b"89").await;
        check("GET", &["Range: bytes=0-1,4-5"], "200", "-", b"0123456789").await;
        check("GET", &["Range: bytes=10-"], "416", "bytes */10", b"").await;
        check("GET", &["If-None-Match: *"], "304", "-", b"").await;
        check("GET", &["If-Match: \"other\""], "412", "-", b"").await;
        let since = format!("If-Modified-Since: {CHANGED}");
        check("GET", &[&since], "304", "-", b"").await;
        let same = format!("If-Range: {CHANGED}");
        check("GET", &["Range: bytes=8-", &same], "206", "bytes 8-9/10", b"89").await;
        check("GET", &["Range: bytes=8-", "If-Range: \"old\""], "200", "-", b"0123456789").await;
        check("HEAD", &["Range: bytes=2-4"], "200", "-", b"").await;
    }

    #[tokio::test]
    async fn head_tells_what_get_would() {
        let folder = folder_with("a.bin", b"0123456789");
        let get = ask(&folder, &format!("GET /files/{JOB}/a.bin"), &[]).await;
        let head = ask(&folder, &format!("HEAD /files/{JOB}/a.bin"), &[]).await;
        let fields = |response: &Response| {
            let lines = response.head.lines().filter(|line| !line.starts_with("date:"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(fields(&head), fields(&get));
        assert_eq!(head.header("content-length"), Some("10"));
        assert_eq!(head.header("last-modified"), Some(CHANGED));
    }

    #[tokio::test]
    async fn every_answer_keeps_browsers_from_running_it() {
        let folder = folder_with("a.html", b"<script>");
        for (path, status) in [("a.html", "200"), ("b.html", "404"), ("%00", "404")] {
            for method in ["GET", "HEAD"] {
                let found = ask(&folder, &format!("{method} /files/{JOB}/{path}"), &[]).await;
                assert_eq!(found.status(), status);
                assert_eq!(found.header("x-content-type-options"), Some("nosniff"));
                let policy = found.header("content-security-policy");
                assert_eq!(policy, Some("sandbox; default-src 'none'"));
                assert_eq!(found.header("cross-origin-resource-policy"), Some("same-origin"));
                assert_eq!(found.header("referrer-policy"), Some("no-referrer"));
                assert_eq!(found.header("cache-control"), Some("private, no-cache"));
            }
        }
        let found = ask(&folder, &format!("GET /files/{JOB}/a.html"), &[]).await;
        assert!(found.header("content-disposition").unwrap().starts_with("attachment;"));
        assert_eq!(found.header("accept-ranges"), Some("bytes"));
    }

    #[tokio::test]
    async fn a_large_file_arrives_as_it_is() {
        let content: Vec<u8> = (0..200_007_u32).map(|number| (number % 251) as u8).collect();
        let folder = folder_with("large", &content);
        let whole = ask(&folder, &format!("GET /files/{JOB}/large"), &[]).await;
        assert!(whole.body == content, "{} bytes came", whole.body.len());
        let range = "Range: bytes=65535-131072";
        let part = ask(&folder, &format!("GET /files/{JOB}/large"), &[range]).await;
        assert!(part.body == content[65_535..=131_072], "{} bytes came", part.body.len());
        let nothing =
            ask(&folder_with("empty", b""), &format!("GET /files/{JOB}/empty"), &[]).await;
        assert_eq!((nothing.status(), nothing.header("content-length")), ("200", Some("0")));
    }

    #[tokio::test]
    async fn a_file_that_becomes_shorter_ends_the_connection_and_nothing_is_made_up() {
        let content = vec![7; 1_000_000];
        let folder = folder_with("shrinking", &content);
        let found = ask_for(&folder, &format!("GET /files/{JOB}/shrinking"), &[], 1).await;
        assert_eq!(found.header("content-length"), Some("1000001"));
        assert!(found.body.len() <= content.len(), "{} bytes came", found.body.len());
        assert!(found.body.iter().all(|byte| *byte == 7));
    }

    #[tokio::test]
    async fn whatever_is_wrong_the_answer_is_the_same() {
        let folder = folder_with("a.bin", b"0123456789");
        fs::create_dir(folder.path().join("folder")).unwrap();
        let other_job = JOB.replace('0', "1");
        let mut heads = std::collections::BTreeSet::new();
        let not_there = br#"{"detail":"there is no such file here, or its link has expired: ask for it to be made again"}"#;
        for path in [
            format!("/files/{JOB}/missing"),
            format!("/files/{JOB}/folder"),
            format!("/files/{JOB}/a.bin?bad"),
            format!("/files/{other_job}/a.bin"),
            format!("/files/{JOB}/..%2f..%2fa.bin"),
            format!("/files/{JOB}/../{JOB}/a.bin"),
            format!("/files/{JOB}/"),
            format!("/files/{JOB}"),
            "/files/".to_owned(),
            "/files".to_owned(),
            format!("/files//{JOB}/a.bin"),
        ] {
            let found = ask(&folder, &format!("GET {path}"), &[]).await;
            assert_eq!(found.status(), "404", "{path}");
            assert_eq!(found.body, not_there, "{path}");
            let lines = found.head.lines().filter(|line| !line.starts_with("date:"));
            heads.insert(lines.collect::<Vec<_>>().join("\n"));
        }
        assert_eq!(heads.len(), 1, "{heads:?}");
        let found = ask(&folder, &format!("POST /files/{JOB}/a.bin"), &[]).await;
        assert_eq!((found.status(), found.header("allow")), ("405", Some("GET, HEAD")));
    }

    #[tokio::test]
    async fn a_tag_changes_with_the_file() {
        let folder = folder_with("a.bin", b"0123456789");
        let (line, path) = (format!("GET /files/{JOB}/a.bin"), folder.path().join("a.bin"));
        let mut tags = std::collections::HashSet::new();
        let first = ask(&folder, &line, &[]).await.header("etag").unwrap().to_owned();
        let again = ask(&folder, &line, &[&format!("If-None-Match: {first}")]).await;
        assert_eq!((again.status(), again.header("etag")), ("304", Some(first.as_str())));
        tags.insert(first);
        set_changed(&path, UNIX_EPOCH + Duration::new(1_700_000_000, 1));
        tags.insert(ask(&folder, &line, &[]).await.header("etag").unwrap().to_owned());
        fs::write(&path, b"01234567890").unwrap();
        set_changed(&path, UNIX_EPOCH + Duration::from_secs(1_700_000_000));
        tags.insert(ask(&folder, &line, &[]).await.header("etag").unwrap().to_owned());
        assert_eq!(tags.len(), 3, "{tags:?}");
    }

    #[tokio::test]
    async fn a_time_that_no_header_can_hold_does_no_harm() {
        let folder = folder_with("a.bin", b"0123456789");
        let epoch = UNIX_EPOCH;
        for time in [epoch - Duration::from_secs(5_000_000), epoch + Duration::from_secs(1 << 33)] {
            set_changed(&folder.path().join("a.bin"), time);
            let found = ask(&folder, &format!("GET /files/{JOB}/a.bin"), &[]).await;
            assert_eq!((found.status(), found.header("last-modified")), ("200", None));
        }
    }

    #[test]
    fn names_in_every_script_survive_and_none_ends_the_header() {
        let check = |name: &str, expected: &str| {
            assert_eq!(disposition(name), format!("attachment; {expected}"));
            HeaderValue::from_str(&disposition(name)).unwrap();
        };
        check("a b.txt", "filename=\"a b.txt\"; filename*=UTF-8''a%20b.txt");
        check("資料.pptx", "filename=\"__.pptx\"; filename*=UTF-8''%E8%B3%87%E6%96%99.pptx");
        check("a\"b\\c;d.txt", "filename=\"a_b_c;d.txt\"; filename*=UTF-8''a%22b%5Cc%3Bd.txt");
        check("100%.txt", "filename=\"100_.txt\"; filename*=UTF-8''100%25.txt");
        check("a\r\nX: y", "filename=\"a__X: y\"; filename*=UTF-8''a%0D%0AX%3A%20y");
        check("it's (1).txt", "filename=\"it's (1).txt\"; filename*=UTF-8''it%27s%20%281%29.txt");
    }
}
