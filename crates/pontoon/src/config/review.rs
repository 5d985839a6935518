//! What the settings are worth a remark for once all of them are known.
//!
//! Each may be fine by itself; here is told what lets strangers in, what loses files, and what
//! cannot mean what its author thinks.

use std::net::SocketAddr;
use std::path::Path;

use uuid::Uuid;

use super::allowed_origins::AllowedOrigins;
use super::options::Options;
use super::reach::review_links;
use super::remarks::{RemarkPlace, Remarks, Weight};
use super::secret::{ApiKey, KeyName, Secret};
use super::settings::BridgeSettings;
use super::tls::review_tls;

/// A key shorter than this can be guessed.
const SHORTEST_KEY: usize = 8;

/// The same for what signs users: HS256 stands and falls with it.
const SHORTEST_JWT_SECRET: usize = 16;

/// Looks the settings over, with what the command line adds to them.
pub(super) fn review(options: &Options, settings: &BridgeSettings, remarks: &mut Remarks) {
    review_keys(options, settings, remarks);
    review_proxies(settings, remarks);
    if !options.is_silent {
        review_tls(options, settings, remarks);
        review_origins(options, settings, remarks);
        review_links(settings, remarks);
    }
    review_folders(settings, remarks);
    if !options.is_silent {
        review_kinds(settings, remarks);
    }
}

/// Refuses to let strangers in by accident.
pub(super) fn review_listening(
    options: &Options,
    settings: &BridgeSettings,
    remarks: &mut Remarks,
) {
    let (place, key) = said_where(options);
    for address in open_to_strangers(options, settings) {
        let (weight, message) = if options.insecure {
            let message = format!("whoever reaches {address} can use every server");
            (Weight::Warning, message)
        } else {
            let message = format!(
                "{address} can be reached from other machines, and there is no API key: set \
                 MCPO_API_KEY, or listen on 127.0.0.1, or add --insecure if something else keeps \
                 strangers out"
            );
            (Weight::Mistake, message)
        };
        remarks.add(weight, place.clone(), key, message);
    }
}

/// Sees that strangers need a key also for the demo, which is there when nothing is configured and must
/// start: makes one, and gives it.
pub(super) fn lock_demo(
    options: &Options,
    settings: &mut BridgeSettings,
    remarks: &mut Remarks,
) -> Option<Secret> {
    if options.insecure {
        review_listening(options, settings, remarks);
        return None;
    }
    let address = open_to_strangers(options, settings).next()?;
    let message = format!(
        "{address} can be reached from other machines, and there is no API key: the demo asks for one that is \
         made at its start; set MCPO_API_KEY for one of your own"
    );
    let (place, key) = said_where(options);
    remarks.add(Weight::Warning, place, key, message);
    let made = Secret::new(Uuid::new_v4().simple().to_string());
    settings.set_unnamed_key(made.clone());
    Some(made)
}

/// The addresses at which other machines reach us without a key.
fn open_to_strangers<'s>(
    options: &Options,
    settings: &'s BridgeSettings,
) -> impl Iterator<Item = &'s SocketAddr> + use<'s> {
    let is_shut = !settings.api_keys.is_empty() || options.is_silent;
    let is_public = move |address: &&SocketAddr| !address.ip().to_canonical().is_loopback();
    settings.listen.iter().filter(is_public).filter(move |_| !is_shut)
}

/// Where it was said on which addresses to listen.
fn said_where(options: &Options) -> (RemarkPlace, &'static str) {
    match options.listen {
        Some(_) if options.mcpo.is_some() => (RemarkPlace::CommandLine, "--host"),
        Some(_) => (RemarkPlace::CommandLine, "--listen"),
        None => (RemarkPlace::Environment, "MCPO_LISTEN"),
    }
}

fn review_keys(options: &Options, settings: &BridgeSettings, remarks: &mut Remarks) {
    let unnamed = match options.api_key {
        Some(_) => (RemarkPlace::CommandLine, "--api-key"),
        None => (RemarkPlace::Environment, "MCPO_API_KEY"),
    };
    if options.api_key.is_some() {
        let message = "other users of this machine can read it here; set MCPO_API_KEY instead";
        remarks.add(Weight::Warning, unnamed.0.clone(), unnamed.1, message);
    }
    let keys = &settings.api_keys;
    for (index, ApiKey { name, key }) in keys.iter().enumerate() {
        let (place, variable) = match *name == KeyName::Unnamed {
            true => unnamed.clone(),
            false => (RemarkPlace::Environment, "MCPO_API_KEYS"),
        };
        let mut tell = |weight, message: String| {
            remarks.add(weight, place.clone(), variable, message);
        };
        if key.expose().len() < SHORTEST_KEY {
            let message = format!(
                "the key `{name}` is easily guessed; take at least {SHORTEST_KEY} characters"
            );
            tell(Weight::Warning, message);
        }
        let before = &keys[..index];
        if before.iter().any(|other| other.name.as_str() == name.as_str()) {
            tell(Weight::Mistake, format!("there are two keys of the name `{name}`"));
        }
        if let Some(other) = before.iter().find(|other| other.key == *key) {
            let message = format!("the keys of `{}` and `{name}` are the same", other.name);
            tell(Weight::Mistake, message);
        }
    }
    if (settings.strict_auth || options.strict_auth) && keys.is_empty() {
        let (place, key) = match options.strict_auth {
            true => (RemarkPlace::CommandLine, "--strict-auth"),
            false => (RemarkPlace::Environment, "MCPO_STRICT_AUTH"),
        };
        // mcpo asks nobody then, and starts.
        let (weight, message) = match options.mcpo {
            Some(_) => (Weight::Warning, "is ignored: there is no key to ask for; add --api-key"),
            None => (Weight::Mistake, "there is no key to ask for; set MCPO_API_KEY"),
        };
        remarks.add(weight, place, key, message);
    }
    if settings.owui_jwt_secret.as_ref().is_some_and(|it| it.expose().len() < SHORTEST_JWT_SECRET) {
        let message = format!(
            "is easily guessed; take at least {SHORTEST_JWT_SECRET} characters, here and there"
        );
        remarks.add(Weight::Warning, RemarkPlace::Environment, "MCPO_OWUI_JWT_SECRET", message);
    }
}

/// What it means that pages of every origin may call: the `Origin` header keeps none of them out any more.
fn review_origins(options: &Options, settings: &BridgeSettings, remarks: &mut Remarks) {
    if settings.allowed_origins != AllowedOrigins::Any {
        return;
    }
    let message = match settings.api_keys.is_empty() {
        true => {
            "every web page may call, and there is no API key: a page that anyone opens in a browser that reaches \
             Pontoon, on this machine for one, can use every server and read its answers, without the tricks with names \
             (DNS rebinding) that the check of origins is against; name the pages, or set MCPO_API_KEY"
        }
        false => {
            "every web page may call, so that only the API key keeps them from the servers; name the pages"
        }
    };
    let (place, key) = match options.cors_allow_origins.is_empty() {
        true => (RemarkPlace::Environment, "MCPO_ALLOWED_ORIGINS"),
        false => (RemarkPlace::CommandLine, "--cors-allow-origins"),
    };
    remarks.add(Weight::Warning, place, key, message);
}

fn review_proxies(settings: &BridgeSettings, remarks: &mut Remarks) {
    if settings.trusted_proxies.iter().any(|block| block.is_everything()) {
        let message = "everyone is trusted, so whoever reaches Pontoon can pretend to be anybody";
        remarks.add(Weight::Warning, RemarkPlace::Environment, "MCPO_TRUSTED_PROXIES", message);
        return;
    }
    // Servers run here as well, and have no key.
    let is_proved = settings.owui_jwt_secret.is_some() || !settings.api_keys.is_empty();
    if !is_proved && settings.trusted_proxies.iter().any(|block| block.has_loopback()) {
        let message = "this machine is trusted, so every server that may use the network can pretend \
                       to be any user; set MCPO_OWUI_JWT_SECRET or an API key, or give servers \
                       \"isolation\": {\"network\": \"none\"}";
        remarks.add(Weight::Warning, RemarkPlace::Environment, "MCPO_TRUSTED_PROXIES", message);
    }
}

/// What is too old in the folder of jobs is removed, so nothing else may lie there.
fn review_folders(settings: &BridgeSettings, remarks: &mut Remarks) {
    let jobs = &settings.jobs_dir;
    if jobs.parent().is_none() {
        let message = "is the root of all files; name a folder of its own";
        remarks.add(Weight::Mistake, RemarkPlace::Environment, "MCPO_JOBS_DIR", message);
        return;
    }
    let others = [
        ("MCPO_LOG_DIR", settings.log_dir.as_deref()),
        ("MCPO_STATE_DIR", settings.state_dir.as_deref()),
    ];
    let is_inside = |folder: &Path| folder.starts_with(jobs);
    for (variable, _) in others.iter().filter(|(_, folder)| folder.is_some_and(is_inside)) {
        let message = format!("lies in `{}`, where all that is old is removed", jobs.display());
        remarks.add(Weight::Mistake, RemarkPlace::Environment, *variable, message);
    }
}

/// What is there in the place of a folder keeps the bridge from starting; without the files of its log it goes on.
fn review_kinds(settings: &BridgeSettings, remarks: &mut Remarks) {
    let folders = [
        ("MCPO_JOBS_DIR", Some(settings.jobs_dir.as_path()), Weight::Mistake),
        ("MCPO_LOG_DIR", settings.log_dir.as_deref(), Weight::Warning),
        ("MCPO_STATE_DIR", settings.state_dir.as_deref(), Weight::Mistake),
    ];
    for (variable, folder, weight) in folders {
        let Some(folder) = folder.filter(|folder| folder.exists() && !folder.is_dir()) else {
            continue;
        };
        let message = format!(
            "`{}` is a file and no folder: name a folder, or move the file away",
            folder.display()
        );
        remarks.add(weight, RemarkPlace::Environment, variable, message);
    }
}

#[cfg(test)]
mod tests {
    use super::super::environment::Environment;
    use super::super::variables;
    use super::*;

    /// Compares what is told about these variables and options.
    fn check_with(options: &Options, variables: &[(&str, &str)], told: &[&str]) {
        let mut remarks = Remarks::default();
        let environment = Environment::new(variables.iter().copied());
        let mut settings = variables::read(&environment, &mut remarks);
        if let Some(key) = &options.api_key {
            variables::take(&mut settings, "MCPO_API_KEY", key).unwrap();
        }
        review(options, &settings, &mut remarks);
        review_listening(options, &settings, &mut remarks);
        assert_eq!(remarks.lines(), told);
    }

    fn check(variables: &[(&str, &str)], told: &[&str]) {
        check_with(&Options::default(), variables, told);
    }

    #[test]
    fn keys_and_their_names_differ() {
        check(&[("MCPO_API_KEY", "12345678"), ("MCPO_API_KEYS", "a=abcdefgh,b=ABCDEFGH")], &[]);
        check(
            &[("MCPO_API_KEY", "12345678"), ("MCPO_API_KEYS", "a=12345678,default=abcdefgh")],
            &[
                "Mistake: MCPO_API_KEYS: the keys of `default` and `a` are the same",
                "Mistake: MCPO_API_KEYS: there are two keys of the name `default`",
            ],
        );
    }

    #[test]
    fn a_short_key_warns() {
        let told = "is easily guessed; take at least";
        check(
            &[("MCPO_API_KEY", "1234567"), ("MCPO_API_KEYS", "a=7")],
            &[
                &format!("Warning: MCPO_API_KEY: the key `default` {told} 8 characters"),
                &format!("Warning: MCPO_API_KEYS: the key `a` {told} 8 characters"),
            ],
        );
        check(
            &[("MCPO_OWUI_JWT_SECRET", "123")],
            &[&format!("Warning: MCPO_OWUI_JWT_SECRET: {told} 16 characters, here and there")],
        );
    }

    #[test]
    fn a_key_on_the_command_line_warns() {
        let options = Options { api_key: Some("12345678".to_owned()), ..Options::default() };
        let told = "Warning: --api-key: other users of this machine can read it here; set \
                    MCPO_API_KEY instead";
        check_with(&options, &[], &[told]);
    }

    #[test]
    fn strict_auth_needs_a_key() {
        let told = "there is no key to ask for; set MCPO_API_KEY";
        check(&[("MCPO_STRICT_AUTH", "true")], &[&format!("Mistake: MCPO_STRICT_AUTH: {told}")]);
        let options = Options { strict_auth: true, ..Options::default() };
        check_with(&options, &[], &[&format!("Mistake: --strict-auth: {told}")]);
        check_with(&options, &[("MCPO_API_KEYS", "a=12345678")], &[]);
    }

    #[test]
    fn listening_beyond_this_machine_needs_a_key() {
        let public = ("MCPO_LISTEN", "0.0.0.0:80");
        check(&[public, ("MCPO_API_KEY", "12345678")], &[]);
        check(&[public, ("MCPO_API_KEYS", "a=12345678")], &[]);
        let told = "Mistake: MCPO_LISTEN: 0.0.0.0:80 can be reached from other machines, and \
                    there is no API key: set MCPO_API_KEY, or listen on 127.0.0.1, or add \
                    --insecure if something else keeps strangers out";
        check(&[public], &[told]);
    }

    #[test]
    fn where_nothing_listens_any_address_will_do() {
        let options = Options { is_silent: true, ..Options::default() };
        check_with(&options, &[("MCPO_LISTEN", "0.0.0.0:80")], &[]);
    }

    #[test]
    fn letting_every_page_in_warns_and_more_so_without_a_key() {
        let key = ("MCPO_API_KEY", "12345678");
        check(&[("MCPO_ALLOWED_ORIGINS", "https://a.example"), key], &[]);
        let told = "Warning: MCPO_ALLOWED_ORIGINS: every web page may call, so that only the API key keeps \
                    them from the servers; name the pages";
        check(&[("MCPO_ALLOWED_ORIGINS", "*"), key], &[told]);
        let told = "Warning: MCPO_ALLOWED_ORIGINS: every web page may call, and there is no API key: a \
                    page that anyone opens in a browser that reaches Pontoon, on this machine for one, can \
                    use every server and read its answers, without the tricks with names (DNS rebinding) \
                    that the check of origins is against; name the pages, or set MCPO_API_KEY";
        check(&[("MCPO_ALLOWED_ORIGINS", "*")], &[told]);
        let options = Options { is_silent: true, ..Options::default() };
        check_with(&options, &[("MCPO_ALLOWED_ORIGINS", "*")], &[]);
    }

    #[test]
    fn trusting_everyone_warns() {
        let told = "Warning: MCPO_TRUSTED_PROXIES: everyone is trusted, so whoever reaches \
                    Pontoon can pretend to be anybody";
        check(&[("MCPO_TRUSTED_PROXIES", "10.0.0.0/8, ::/0")], &[told]);
        check(&[("MCPO_TRUSTED_PROXIES", "10.0.0.0/8")], &[]);
    }

    #[test]
    fn trusting_this_machine_warns_where_nothing_proves_who_asks() {
        let told = "Warning: MCPO_TRUSTED_PROXIES: this machine is trusted, so every server that may \
                    use the network can pretend to be any user; set MCPO_OWUI_JWT_SECRET or an API \
                    key, or give servers \"isolation\": {\"network\": \"none\"}";
        for trusted in ["127.0.0.1", "127.0.0.0/8", "10.0.0.0/8, ::1", "127.1.2.3", "::/64"] {
            check(&[("MCPO_TRUSTED_PROXIES", trusted)], &[told]);
            let proof = ("MCPO_OWUI_JWT_SECRET", "0123456789abcdef");
            check(&[("MCPO_TRUSTED_PROXIES", trusted), proof], &[]);
            check(&[("MCPO_TRUSTED_PROXIES", trusted), ("MCPO_API_KEY", "12345678")], &[]);
        }
        check(&[("MCPO_TRUSTED_PROXIES", "192.0.2.1, fd00::/8")], &[]);
    }

    #[test]
    fn the_folder_of_jobs_is_its_own() {
        let told = "Mistake: MCPO_JOBS_DIR: is the root of all files; name a folder of its own";
        check(&[("MCPO_JOBS_DIR", "/")], &[told]);
        let told = "lies in `/j`, where all that is old is removed";
        check(
            &[("MCPO_JOBS_DIR", "/j"), ("MCPO_LOG_DIR", "/j/log"), ("MCPO_STATE_DIR", "/j")],
            &[
                &format!("Mistake: MCPO_LOG_DIR: {told}"),
                &format!("Mistake: MCPO_STATE_DIR: {told}"),
            ],
        );
        check(&[("MCPO_JOBS_DIR", "/j"), ("MCPO_LOG_DIR", "/jobs")], &[]);
    }
}
