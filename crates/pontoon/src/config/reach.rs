//! Which names a browser can reach, and what the settings say of links that it cannot.

use std::net::{IpAddr, SocketAddr};

use super::remarks::{RemarkPlace, Remarks, Weight};
use super::settings::BridgeSettings;
use super::values::host_of;

/// Whether only a network of containers or a cluster knows this name. A loopback name is no such one: a
/// browser on this machine knows it.
pub fn is_inner_name(host: &str) -> bool {
    let is_address = host.starts_with('[') || host.parse::<IpAddr>().is_ok();
    let is_inner = |ending: &&str| host.ends_with(*ending);
    !is_address
        && host != "localhost"
        && (!host.contains('.') || [".internal", ".svc", ".cluster.local"].iter().any(is_inner))
}

/// Tells where no link to a file can be right.
pub(super) fn review_links(settings: &BridgeSettings, remarks: &mut Remarks) {
    review_base_url(settings, remarks);
    if !settings.base_url.is_empty() {
        return;
    }
    let is_inner = |host: &&String| is_inner_name(without_port(host));
    for host in settings.allowed_hosts.iter().filter(is_inner) {
        let message = format!(
            "browsers do not know `{host}`, so links to files for clients that call it do not open, or \
             only on a page behind the same proxy; set MCPO_BASE_URL to what browsers reach"
        );
        remarks.add(Weight::Warning, RemarkPlace::Environment, "MCPO_ALLOWED_HOSTS", message);
    }
    let is_local = |address: &SocketAddr| address.ip().to_canonical().is_loopback();
    if !settings.trusted_proxies.is_empty() || !settings.listen.iter().all(is_local) {
        return;
    }
    let is_public = |host: &&String| {
        let name = without_port(host);
        let is_address = name.starts_with('[') || name.parse::<IpAddr>().is_ok();
        !is_address && name != "localhost" && !is_inner_name(name)
    };
    if let Some(host) = settings.allowed_hosts.iter().find(is_public) {
        let message = format!(
            "only this machine reaches Pontoon, so a proxy serves `{host}`, and it is not named here: \
             links to files begin with {}://{host}, whatever browsers call; name the proxy, or set \
             MCPO_BASE_URL",
            settings.scheme()
        );
        remarks.add(Weight::Warning, RemarkPlace::Environment, "MCPO_TRUSTED_PROXIES", message);
    }
}

/// A name that only a container network or this machine knows is no use in somebody's browser.
fn review_base_url(settings: &BridgeSettings, remarks: &mut Remarks) {
    let Some(host) = host_of(&settings.base_url) else { return };
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    let is_here = match address {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => !host.contains('.'),
    };
    if is_here {
        let message = format!(
            "browsers elsewhere cannot reach `{host}`, and links to files begin with it; write \
             the name that people use, or leave it empty"
        );
        remarks.add(Weight::Warning, RemarkPlace::Environment, "MCPO_BASE_URL", message);
    }
}

fn without_port(host: &str) -> &str {
    if host.starts_with('[') { host } else { host.split(':').next().unwrap_or(host) }
}

#[cfg(test)]
mod tests {
    use super::super::environment::Environment;
    use super::super::variables;
    use super::*;

    /// Compares what is told about these variables.
    #[track_caller]
    fn check(variables: &[(&str, &str)], told: &[&str]) {
        let mut remarks = Remarks::default();
        let environment = Environment::new(variables.iter().copied());
        let settings = variables::read(&environment, &mut remarks);
        review_links(&settings, &mut remarks);
        assert_eq!(remarks.lines(), told);
    }

    #[test]
    fn names_of_containers_are_known_to_no_browser() {
        for name in ["nginx", "host.docker.internal", "a.b.svc", "a.b.svc.cluster.local"] {
            assert!(is_inner_name(name), "{name}");
        }
        for name in ["localhost", "127.0.0.1", "[::1]", "tools.example.org", "printer.local"] {
            assert!(!is_inner_name(name), "{name}");
        }
    }

    #[test]
    fn a_base_url_that_browsers_cannot_reach_warns() {
        for (url, host) in [
            ("http://nginx", "nginx"),
            ("http://localhost:8080/x", "localhost"),
            ("http://127.0.0.1:8080", "127.0.0.1"),
            ("http://[::1]", "[::1]"),
        ] {
            let told = format!(
                "Warning: MCPO_BASE_URL: browsers elsewhere cannot reach `{host}`, and links to \
                 files begin with it; write the name that people use, or leave it empty"
            );
            check(&[("MCPO_BASE_URL", url)], &[&told]);
        }
        check(&[("MCPO_BASE_URL", "https://tools.example.org")], &[]);
        check(&[("MCPO_BASE_URL", "http://10.0.0.1")], &[]);
    }

    #[test]
    fn a_host_that_no_browser_knows_warns_where_links_would_begin_with_it() {
        let hosts = ("MCPO_ALLOWED_HOSTS", "nginx:81, 10.0.0.1, localhost, [::1]");
        let told = "Warning: MCPO_ALLOWED_HOSTS: browsers do not know `nginx:81`, so links to files for \
                    clients that call it do not open, or only on a page behind the same proxy; set \
                    MCPO_BASE_URL to what browsers reach";
        check(&[hosts], &[told]);
        check(&[hosts, ("MCPO_TRUSTED_PROXIES", "127.0.0.1")], &[told]);
        check(&[hosts, ("MCPO_BASE_URL", "https://tools.example.org")], &[]);
    }

    #[test]
    fn a_proxy_that_is_not_declared_warns() {
        let hosts = ("MCPO_ALLOWED_HOSTS", "tools.example.org");
        let told = "Warning: MCPO_TRUSTED_PROXIES: only this machine reaches Pontoon, so a proxy serves \
                    `tools.example.org`, and it is not named here: links to files begin with \
                    http://tools.example.org, whatever browsers call; name the proxy, or set MCPO_BASE_URL";
        check(&[hosts], &[told]);
        check(&[hosts, ("MCPO_TRUSTED_PROXIES", "127.0.0.1")], &[]);
        check(&[hosts, ("MCPO_BASE_URL", "https://tools.example.org")], &[]);
        check(&[hosts, ("MCPO_LISTEN", "0.0.0.0:8080")], &[]);
        check(&[], &[]);
    }
}
