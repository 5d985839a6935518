//! Variables that every server sees: those that programs need to run at all, and those that say how to
//! reach the network.
//!
//! Without the latter, where certificates are and which proxies there are, a program cannot fetch anything
//! behind a company's proxy. Settings of package indexes are not among them: those often hold tokens.

use std::ffi::OsStr;
use std::path::PathBuf;

use pontoon_wire::heal::Heal;

use super::environment::Environment;

/// Variables that programs need to run at all, and that hold no secrets.
pub(super) const USUAL_VARIABLES: &[&str] =
    &["PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"];

/// Most servers are Python: without these, output waits in a buffer or is not UTF-8.
/// Each is set where that heal is to be repaired.
pub(super) const DEFAULT_VARIABLES: &[(&str, &str, Heal)] = &[
    ("PYTHONIOENCODING", "utf-8", Heal::H06),
    ("PYTHONUNBUFFERED", "1", Heal::H07),
    ("PYTHONUTF8", "1", Heal::H06),
];

/// Files and folders of certificates.
pub(super) const CERTIFICATE_VARIABLES: &[&str] = &[
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "NPM_CONFIG_CAFILE",
];

/// Proxies; each name is used in small letters, too.
pub(super) const PROXY_VARIABLES: &[&str] = &["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"];

/// Whether a variable of this name says how to reach the network.
pub(super) fn is_of_the_network(name: &str) -> bool {
    CERTIFICATE_VARIABLES.contains(&name) || is_proxy(name)
}

fn is_proxy(name: &str) -> bool {
    PROXY_VARIABLES.iter().any(|proxy| name == *proxy || name == proxy.to_ascii_lowercase())
}

/// The files and folders of certificates that these variables name, as far as they are there.
pub fn certificates(environment: &Environment) -> Vec<PathBuf> {
    let is_certificate =
        |name: &OsStr| name.to_str().is_some_and(|name| CERTIFICATE_VARIABLES.contains(&name));
    let named = environment.iter().filter(|(name, _)| is_certificate(name));
    let paths = named.flat_map(|(_, value)| std::env::split_paths(value));
    paths.filter(|path| path.is_absolute() && path.exists()).collect()
}

/// What the proxies among these variables hold in confidence: passwords, and who has them.
pub fn proxy_secrets(environment: &Environment) -> Vec<String> {
    let mut secrets = Vec::new();
    for (name, value) in environment.iter() {
        let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else { continue };
        let rest = value.split_once("://").map_or(value, |(_, rest)| rest);
        let place = rest.split(['/', '?', '#']).next().unwrap_or_default();
        if let (true, Some((who, _))) = (is_proxy(name), place.rsplit_once('@')) {
            let password = who.split_once(':').map(|(_, password)| password);
            for secret in [Some(who), password].into_iter().flatten() {
                let plain = percent_encoding::percent_decode_str(secret).decode_utf8_lossy();
                secrets.extend([secret.to_owned(), plain.into_owned()]);
            }
        }
    }
    secrets.sort_unstable();
    secrets.dedup();
    secrets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, value: &str, expected: &[&str]) {
        let environment = Environment::new([(name, value)]);
        assert_eq!(proxy_secrets(&environment), expected, "{value}");
    }

    #[test]
    fn who_may_use_a_proxy_is_secret() {
        check("HTTPS_PROXY", "http://proxy.example.org:3128", &[]);
        check("HTTPS_PROXY", "http://ada:hunter22@proxy:3128/", &["ada:hunter22", "hunter22"]);
        check("all_proxy", "ada:hunter22@proxy", &["ada:hunter22", "hunter22"]);
        check(
            "http_proxy",
            "http://a:p%40ss1@proxy",
            &["a:p%40ss1", "a:p@ss1", "p%40ss1", "p@ss1"],
        );
        check("http_proxy", "http://token@proxy", &["token"]);
        check("http_proxy", "http://proxy/a:b@c", &[]);
        check("OTHER", "http://ada:hunter22@proxy:3128/", &[]);
    }

    #[test]
    fn certificates_that_are_there_are_found() {
        let place = tempfile::tempdir().unwrap();
        let (file, folder) = (place.path().join("ca.pem"), place.path().join("certs"));
        std::fs::write(&file, "").unwrap();
        std::fs::create_dir(&folder).unwrap();
        let list = std::env::join_paths([&folder, &place.path().join("gone")]).unwrap();
        let environment = [
            ("NODE_EXTRA_CA_CERTS", file.clone().into_os_string()),
            ("SSL_CERT_DIR", list),
            ("SSL_CERT_FILE", "relative.pem".into()),
            ("OTHER", "/etc".into()),
        ];
        assert_eq!(certificates(&Environment::new(environment)), [file, folder]);
    }
}
