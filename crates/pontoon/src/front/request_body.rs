//! The body of a request: read whole, within its limits, and counted while it is held.

use std::time::Duration;

use bytes::BytesMut;
use http_body_util::BodyExt;
use hyper::HeaderMap;
use hyper::body::{Body, Incoming};
use hyper::header::CONTENT_ENCODING;

use super::refusal::Refusal;
use super::site::HttpSite;
use crate::client::Principal;
use crate::held_bytes::{Full, Hold, RETRY_SECONDS};
use crate::observe::metrics::Limit;

/// How long it may take.
const BODY_TIME: Duration = Duration::from_secs(60);

/// The whole body, and what counts it.
///
/// # Errors
///
/// A body that is too large, too slow, encoded or broken off, or for which there is no room.
pub async fn read_body(
    headers: &HeaderMap,
    mut body: Incoming,
    site: &HttpSite,
    client: &Principal,
) -> Result<(BytesMut, Hold), Refusal> {
    let max_body = site.max_body;
    let too_large = || {
        site.metrics.refused(Limit::Body);
        let text = format!("the body is larger than {max_body} bytes (MCPO_MAX_BODY)");
        Refusal::invalid(413, text).closing()
    };
    if headers.contains_key(CONTENT_ENCODING) {
        let text = "send the body as it is, without Content-Encoding";
        return Err(Refusal::invalid(415, text).closing());
    }
    let hint = body.size_hint();
    if hint.lower() > max_body as u64 {
        return Err(too_large());
    }
    let no_room = |full: Full| {
        site.metrics.refused(Limit::Memory);
        let text = format!("busy: {full}, try again in {RETRY_SECONDS} s");
        Refusal::invalid(full.status(), text).closing().retry_after(RETRY_SECONDS)
    };
    if site.held.has_its_share(client) {
        return Err(no_room(Full::Share));
    }
    let mut hold = site.held.hold(Some(client));
    let mut whole = BytesMut::new();
    let reading = async {
        while !body.is_end_stream()
            && let Some(frame) = body.frame().await
        {
            let Ok(frame) = frame else {
                return Err(Refusal::invalid(400, "the body broke off").closing());
            };
            let Ok(data) = frame.into_data() else { continue };
            if whole.len() + data.len() > max_body {
                return Err(too_large());
            }
            let announced = usize::try_from(hint.lower()).unwrap_or(usize::MAX);
            make_room(&mut whole, data.len(), announced, &mut hold).map_err(no_room)?;
            match data.try_into_mut() {
                // The usual case: the whole body in one piece, taken without a copy.
                Ok(data) if whole.is_empty() => whole = data,
                Ok(data) => whole.extend_from_slice(&data),
                Err(data) => whole.extend_from_slice(&data),
            }
        }
        Ok(())
    };
    match tokio::time::timeout(BODY_TIME, reading).await {
        Ok(read) => read.map(|()| (whole, hold)),
        Err(_) => Err(Refusal::invalid(408, "the body took too long").closing()),
    }
}

/// Room for more of a body: as it comes, and never more than twice of what has come, whatever was announced.
fn make_room(
    whole: &mut BytesMut,
    more: usize,
    announced: usize,
    hold: &mut Hold,
) -> Result<(), Full> {
    let needed = whole.len() + more;
    if whole.is_empty() || needed <= whole.capacity() {
        return hold.grow_to(needed);
    }
    let size = (2 * whole.len()).min(announced).max(needed);
    hold.grow_to(size)?;
    whole.reserve(size - whole.len());
    Ok(())
}
