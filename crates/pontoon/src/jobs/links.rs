//! Links: the address of a file, and whether an address that came back is one we gave out.
//!
//! The id of a job cannot be guessed, but it is written to histories and logs. With a secret, a
//! link is signed for one file and ends at a time; nothing has to be remembered for it.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::config::below_root;
use crate::hex::{from_hex, hex};
use crate::mac::{MacKey, Signing};

/// What stays as it is in a path: the unreserved characters of RFC 3986, and the separator.
const ENCODED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// Makes links and checks them.
#[derive(Clone)]
pub struct Links {
    base_url: String,
    root_path: String,
    key: Option<MacKey>,
    expiry: Duration,
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_signed = self.is_signed();
        f.debug_struct("Links")
            .field("base_url", &self.base_url)
            .field("is_signed", &is_signed)
            .finish()
    }
}

impl Links {
    /// Links that begin with `base_url` (empty: with where a client reaches us), signed and good for
    /// `expiry` where there is a secret.
    pub fn new(base_url: &str, secret: Option<&[u8]>, expiry: Duration) -> Self {
        let key = secret.map(MacKey::new);
        let base_url = base_url.trim_end_matches('/').to_owned();
        Self { base_url, root_path: String::new(), key, expiry }
    }

    /// The same behind a proxy that has put this path before ours. A base is whole as it was written.
    pub fn below(self, root_path: &str) -> Self {
        Self { root_path: root_path.to_owned(), ..self }
    }

    /// Whether links end at a time and cannot be made by others.
    pub fn is_signed(&self) -> bool {
        self.key.is_some()
    }

    /// The address of a file of a job, for a client that reaches us at `origin`; our own base comes
    /// before that.
    pub fn url(&self, origin: &str, job: &str, path: &str, now: SystemTime) -> String {
        let encoded = utf8_percent_encode(path, ENCODED);
        let base = match self.base_url.as_str() {
            "" => below_root(origin, &self.root_path),
            base => base.to_owned(),
        };
        let plain = format!("{base}/files/{job}/{encoded}");
        let Some(key) = &self.key else { return plain };
        let until = seconds(now + self.expiry);
        let signature = hex(&signing(key, job, path, until).finish());
        format!("{plain}?exp={until}&sig={signature}")
    }

    /// Whether a link to `path` of `job`, both decoded, may be followed at `now`.
    ///
    /// Always, where links are not signed: then the id of the job is what nobody can guess.
    pub fn check(&self, job: &str, path: &str, query: Option<&str>, now: SystemTime) -> bool {
        let Some(key) = &self.key else { return true };
        let Some((until, signature)) = query.and_then(read_query) else { return false };
        let is_ours = signing(key, job, path, until).matches(&signature);
        is_ours && seconds(now) <= until
    }
}

fn signing(key: &MacKey, job: &str, path: &str, until: u64) -> Signing {
    let signing = key.begin("pontoon file link 1").part(job.as_bytes()).part(path.as_bytes());
    signing.last(&until.to_be_bytes())
}

/// The two values of `exp=..&sig=..`; each once, and nothing else.
fn read_query(query: &str) -> Option<(u64, [u8; 32])> {
    let (mut until, mut signature) = (None, None);
    for pair in query.split('&') {
        let fresh = match pair.split_once('=')? {
            ("exp", value) => until.replace(decimal(value)?).is_none(),
            ("sig", value) => signature.replace(from_hex(value)?).is_none(),
            _ => false,
        };
        if !fresh {
            return None;
        }
    }
    Some((until?, signature?))
}

/// A number as we write it: no sign, no zeros in front.
fn decimal(text: &str) -> Option<u64> {
    let number = text.parse::<u64>().ok()?;
    (number.to_string() == text).then_some(number)
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: &str = "12345678-9abc-4def-8123-456789abcdef";
    const HOUR: Duration = Duration::from_secs(3600);

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    fn signed() -> Links {
        Links::new("https://tools.example.org/", Some(b"a secret of some length"), HOUR)
    }

    /// The query of a signed link to `path`.
    fn query(path: &str) -> String {
        signed().url("", JOB, path, now()).split_once('?').unwrap().1.to_owned()
    }

    fn check(path: &str, query: &str, after: Duration, good: bool) {
        let links = signed();
        let found = links.check(JOB, path, Some(query), now() + after);
        assert_eq!(found, good, "{path:?} with {query:?}");
    }

    #[test]
    fn a_link_without_a_base_begins_at_the_root() {
        let links = Links::new("", None, HOUR);
        let url = links.url("", JOB, "売上/a b%?#.txt", now());
        assert_eq!(url, format!("/files/{JOB}/%E5%A3%B2%E4%B8%8A/a%20b%25%3F%23.txt"));
        assert!(!links.is_signed());
        assert!(links.check(JOB, "anything", None, now()));
    }

    #[test]
    fn the_base_comes_before_where_a_client_reaches_us() {
        let check = |base: &str, origin: &str, expected: &str| {
            let url = Links::new(base, None, HOUR).url(origin, JOB, "a", now());
            assert_eq!(url, format!("{expected}/files/{JOB}/a"));
        };
        check("", "", "");
        check("", "http://host:1", "http://host:1");
        check("https://base/x/", "http://host:1", "https://base/x");
        check("https://base", "", "https://base");
    }

    #[test]
    fn a_link_leads_through_the_root_path_of_a_proxy() {
        for (base, origin, expected) in [
            ("", "http://host:1", "http://host:1/rp"),
            // The proxy says which path it took away: this one, and maybe one before it.
            ("", "https://host/rp", "https://host/rp"),
            ("", "https://host/x/rp", "https://host/x/rp"),
            ("", "https://host/x", "https://host/x/rp"),
            ("", "", "/rp"),
            ("https://base", "http://host:1", "https://base"),
        ] {
            let url = Links::new(base, None, HOUR).below("/rp").url(origin, JOB, "a", now());
            assert_eq!(url, format!("{expected}/files/{JOB}/a"), "{base:?} {origin:?}");
        }
    }

    #[test]
    fn a_signed_link_holds_until_it_ends() {
        let url = signed().url("", JOB, "a.txt", now());
        assert!(
            url.starts_with(&format!("https://tools.example.org/files/{JOB}/a.txt?exp=18000036"))
        );
        check("a.txt", &query("a.txt"), Duration::ZERO, true);
        check("a.txt", &query("a.txt"), HOUR, true);
        check("a.txt", &query("a.txt"), HOUR + Duration::from_secs(1), false);
        check("売上/a.txt", &query("売上/a.txt"), HOUR, true);
    }

    #[test]
    fn a_signed_link_is_good_for_its_file_only() {
        check("b.txt", &query("a.txt"), Duration::ZERO, false);
        let other = "00000000-0000-0000-0000-000000000001";
        assert!(!signed().check(other, "a.txt", Some(&query("a.txt")), now()));
        assert!(!signed().check(JOB, "a.txt", None, now()));
        let stranger = Links::new("", Some(b"another secret"), HOUR).url("", JOB, "a.txt", now());
        check("a.txt", stranger.split_once('?').unwrap().1, Duration::ZERO, false);
    }

    #[test]
    fn a_link_with_any_bit_changed_is_refused() {
        let good = query("a.txt");
        for at in 0..good.len() {
            for bit in 0..7 {
                let mut bytes = good.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                check("a.txt", std::str::from_utf8(&bytes).unwrap(), Duration::ZERO, false);
            }
        }
    }

    #[test]
    fn a_query_is_read_strictly() {
        let good = query("a.txt");
        let (until, signature) = good.split_once('&').unwrap();
        check("a.txt", &format!("{signature}&{until}"), Duration::ZERO, true);
        let wrong = [
            "",
            "exp",
            "exp=&sig=",
            until,
            signature,
            &format!("{good}&"),
            &format!("{good}&x=1"),
            &format!("{good}&{until}"),
            &format!("{good}&{signature}"),
            &format!("{good}0"),
            &good.replace("exp=", "exp=0"),
            &good.replace("exp=", "exp=+"),
            &good.replace("exp=", "EXP="),
            &format!("exp={}&{signature}", u64::MAX),
            &format!("exp=99999999999999999999&{signature}"),
            &good.to_ascii_uppercase(),
        ];
        for query in wrong {
            check("a.txt", query, Duration::ZERO, false);
        }
    }

    #[test]
    fn the_secret_is_not_shown() {
        assert!(!format!("{:?}", signed()).contains("secret of"));
    }
}
