//! What a call left behind, told in the head of its response: its job, and where its files are.

use hyper::header::{HeaderValue, LINK};

use super::response::HttpResponse;
use crate::call::Receipt;

/// How many bytes the addresses of files may take in the head of a response.
const MAX_LINKS: usize = 2048;

/// Tells which job recorded a call, and where its files are.
pub fn add_receipt(response: &mut HttpResponse, receipt: &Receipt) {
    let headers = response.headers_mut();
    if let Ok(job) = HeaderValue::from_str(&receipt.job.to_string()) {
        headers.insert("x-mcpo-job-id", job);
    }
    let mut room = MAX_LINKS;
    for (_, link) in &receipt.files {
        // Proxies refuse a head that is too large, and with it the whole answer.
        let Some(left) = usize::checked_sub(room, link.len()) else { break };
        room = left;
        // Addresses are percent-encoded, so they fit into a header.
        if let Ok(link) = HeaderValue::from_str(&format!("<{link}>; rel=\"related\"")) {
            headers.append(LINK, link);
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::front::response::empty;

    #[test]
    fn what_a_call_left_is_told_in_the_head_as_far_as_there_is_room() {
        let link = |number: usize| format!("http://host/files/{number}/{}", "x".repeat(900));
        let files = (0..3).map(|number| (format!("{number}.txt"), link(number))).collect();
        let receipt = Receipt { job: Uuid::from_u128(1), files, blocks: 0 };
        let mut response = empty(200);
        add_receipt(&mut response, &receipt);
        let job = "00000000-0000-0000-0000-000000000001";
        assert_eq!(response.headers()["x-mcpo-job-id"], job);
        let links: Vec<_> = response.headers().get_all(LINK).iter().collect();
        assert_eq!(
            links,
            [0, 1].map(|it| format!("<{}>; rel=\"related\"", link(it))).iter().collect::<Vec<_>>()
        );
    }
}
