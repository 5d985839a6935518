//! Traces over OTLP: the variables `OTEL_*` of OpenTelemetry, as far as they concern a program that only sends traces.
//!
//! Nothing is sent unless a collector is named. What OpenTelemetry would pass over with a warning is a mistake here, like
//! every other wrong value.

use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;

use super::app_options::TlsFiles;
use super::endpoint::Endpoint;
use super::environment::Environment;
use super::remarks::{RemarkPlace, Remarks, Weight};
use super::secret::{Secret, is_own_secret};
use super::values::quoted;

/// Where spans go and which are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceSettings {
    /// The collector, and the path at which it takes spans.
    pub collector: Endpoint,
    /// What it is sent besides. Values may be secrets.
    pub headers: Vec<(String, Secret)>,
    /// How TLS is spoken to it.
    pub tls: TlsFiles,
    /// How long one request to it may take.
    pub timeout: Duration,
    /// What the spans are said to come from; `service.name` is among it.
    pub resource: Vec<(String, String)>,
    /// Which requests have spans.
    pub sampling: Sampling,
}

/// Which requests have spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampling {
    /// Whether a client that has a trace of its own has decided.
    pub is_parent_based: bool,
    /// Of the others, those have spans whose trace id is below this in its last eight bytes, halved; `1 << 63` is all.
    pub below: u64,
}

impl Sampling {
    /// All of them, unless the client has decided otherwise.
    pub const PARENT_OR_ALL: Self = Self { is_parent_based: true, below: 1 << 63 };
}

/// The variables that are read, with what holds without them and what they mean.
#[cfg(test)]
pub(super) const TRACE_VARIABLES: &[(&str, &str, &str)] = &[
    (
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "none: nothing is sent",
        "The collector, such as `http://collector:4318`; spans go to `/v1/traces` below it. `https://` is TLS. A proxy is used as for other \
         connections (`HTTPS_PROXY`, `NO_PROXY`).",
    ),
    (
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "none",
        "The same with its whole path, such as `http://collector:4318/v1/traces`. It wins.",
    ),
    (
        "OTEL_EXPORTER_OTLP_HEADERS",
        "none",
        "Headers for it, such as `authorization=Bearer%20KEY,x-team=tools`: values are percent-encoded. They are secrets: they are not \
         logged, and no server gets them. `OTEL_EXPORTER_OTLP_TRACES_HEADERS` wins.",
    ),
    (
        "OTEL_EXPORTER_OTLP_PROTOCOL",
        "`http/protobuf`",
        "The only one that is spoken; `grpc` and `http/json` are mistakes. `OTEL_EXPORTER_OTLP_TRACES_PROTOCOL` wins.",
    ),
    (
        "OTEL_EXPORTER_OTLP_TIMEOUT",
        "`10000`",
        "How long one request to the collector may take, in milliseconds. `OTEL_EXPORTER_OTLP_TRACES_TIMEOUT` wins.",
    ),
    (
        "OTEL_EXPORTER_OTLP_CERTIFICATE",
        "the authorities of this machine",
        "A file with certificates of authorities that are trusted besides, in PEM form. \
         `OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE` wins.",
    ),
    (
        "OTEL_EXPORTER_OTLP_COMPRESSION",
        "`none`",
        "The only one; `gzip` is a mistake. `OTEL_EXPORTER_OTLP_TRACES_COMPRESSION` wins.",
    ),
    (
        "OTEL_TRACES_EXPORTER",
        "`otlp` where a collector is named",
        "`otlp` without a collector sends to `http://localhost:4318`; `none` sends nothing.",
    ),
    ("OTEL_SERVICE_NAME", "`pontoon`", "What the spans are said to come from (`service.name`)."),
    (
        "OTEL_RESOURCE_ATTRIBUTES",
        "none",
        "More of that, such as `deployment.environment.name=prod,service.namespace=tools`; values are percent-encoded.",
    ),
    (
        "OTEL_TRACES_SAMPLER",
        "`parentbased_always_on`",
        "Which requests have spans: `always_on`, `always_off`, `traceidratio`, or the same with `parentbased_`, where a client that sends a \
         `traceparent` has decided.",
    ),
    (
        "OTEL_TRACES_SAMPLER_ARG",
        "`1`",
        "The share of `traceidratio`, from `0` to `1`, such as `0.1`.",
    ),
    ("OTEL_SDK_DISABLED", "`false`", "`true`: nothing is sent, whatever the others say."),
];

/// What `environment` says of traces; what is wrong goes to `remarks`.
pub(super) fn read(environment: &Environment, remarks: &mut Remarks) -> Option<TraceSettings> {
    let mut reader = TraceReader { environment, remarks };
    if reader.is_off() {
        return None;
    }
    let exporter = reader.value("OTEL_TRACES_EXPORTER", |text| match text {
        "otlp" => Ok(true),
        "none" => Ok(false),
        _ => Err("otlp or none"),
    });
    let is_wanted = exporter.unwrap_or(true);
    let collector = reader.collector(exporter.is_some());
    let collector = collector.filter(|_| is_wanted)?;
    reader.of_traces("PROTOCOL", |text| match text {
        "http/protobuf" => Ok(()),
        "grpc" => Err("http/protobuf (gRPC is not spoken here: collectors take HTTP at port 4318)"),
        _ => Err("http/protobuf"),
    });
    reader.of_traces("COMPRESSION", |text| match text {
        "none" => Ok(()),
        _ => Err("none (spans are not compressed here)"),
    });
    let authorities = reader.of_traces("CERTIFICATE", |text| Ok(PathBuf::from(text)));
    let timeout = reader.of_traces("TIMEOUT", |text| {
        let milliseconds = text.parse().ok().filter(|it| (1..=600_000).contains(it));
        milliseconds.map(Duration::from_millis).ok_or("milliseconds from 1 to 600000")
    });
    let headers = reader.of_traces("HEADERS", |text| {
        let pairs = pairs(text).filter(|pairs| pairs.iter().all(is_header));
        let headers = pairs.ok_or("headers such as authorization=Bearer%20KEY,x-team=tools")?;
        Ok(headers.into_iter().map(|(name, value)| (name, Secret::new(value))).collect())
    });
    Some(TraceSettings {
        collector,
        headers: headers.unwrap_or_default(),
        tls: TlsFiles { authorities, own: None },
        timeout: timeout.unwrap_or(Duration::from_secs(10)),
        resource: reader.resource(),
        sampling: reader.sampling(),
    })
}

/// Reads variables, and tells what is wrong with them.
struct TraceReader<'r> {
    environment: &'r Environment,
    remarks: &'r mut Remarks,
}

impl TraceReader<'_> {
    /// What a variable says, unless it is not set or wrong. An empty one is not set.
    fn value<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, &'static str>,
    ) -> Option<T> {
        let value = self.environment.get(name).filter(|value| !value.is_empty())?;
        let mut tell =
            |message| self.remarks.add(Weight::Mistake, RemarkPlace::Environment, name, message);
        let Some(text) = value.to_str() else {
            tell("is not UTF-8 text".to_owned());
            return None;
        };
        match read(text.trim()) {
            Ok(value) => Some(value),
            Err(expected) => {
                tell(match is_own_secret(name) {
                    true => format!("expected {expected}"),
                    false => format!("expected {expected}, found {}", quoted(text)),
                });
                None
            }
        }
    }

    /// The same of the variable for traces, else of the one for all signals.
    fn of_traces<T>(
        &mut self,
        what: &str,
        read: impl Fn(&str) -> Result<T, &'static str>,
    ) -> Option<T> {
        let names = ["OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_"];
        let names = names.map(|before| format!("{before}{what}"));
        let is_set = |name: &String| self.environment.get(name).is_some_and(|it| !it.is_empty());
        let name = names.into_iter().find(is_set)?;
        self.value(&name, read)
    }

    fn is_off(&mut self) -> bool {
        let read = |text: &str| match text.to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err("true or false"),
        };
        self.value("OTEL_SDK_DISABLED", read).unwrap_or(false)
    }

    /// The collector, or the usual one if spans are wanted by name.
    fn collector(&mut self, is_wanted: bool) -> Option<Endpoint> {
        const FORM: &str = "a URL such as http://collector:4318, without a user name or a query";
        let usual = if is_wanted { "http://localhost:4318" } else { "" };
        let (whole, base) = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT");
        let is_set = |name: &str| self.environment.get(name).is_some_and(|value| !value.is_empty());
        if is_set(whole) {
            return self.value(whole, |text| endpoint(text).ok_or(FORM));
        }
        let below = |text: &str| endpoint(&format!("{}/v1/traces", text.trim_end_matches('/')));
        match is_set(base) {
            true => self.value(base, |text| below(text).ok_or(FORM)),
            false => below(usual),
        }
    }

    fn resource(&mut self) -> Vec<(String, String)> {
        let form = "attributes such as deployment.environment.name=prod,service.namespace=tools";
        let read = |text: &str| pairs(text).ok_or(form);
        let mut resource = self.value("OTEL_RESOURCE_ATTRIBUTES", read).unwrap_or_default();
        let name = self.value("OTEL_SERVICE_NAME", |text| Ok(text.to_owned()));
        let is_named = resource.iter().any(|(key, _)| key == "service.name");
        if let Some(name) = name.or_else(|| (!is_named).then(|| "pontoon".to_owned())) {
            resource.retain(|(key, _)| key != "service.name");
            resource.insert(0, ("service.name".to_owned(), name));
        }
        if !resource.iter().any(|(key, _)| key == "service.version") {
            resource.push(("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()));
        }
        resource
    }

    fn sampling(&mut self) -> Sampling {
        let share = self.value("OTEL_TRACES_SAMPLER_ARG", |text| {
            let share = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
            share.ok_or("a share from 0 to 1, such as 0.1")
        });
        let below = (share.unwrap_or(1.0) * (1_u64 << 63) as f64) as u64;
        let sampler = self.value("OTEL_TRACES_SAMPLER", |text| {
            let (is_parent_based, root) = match text.strip_prefix("parentbased_") {
                Some(root) => (true, root),
                None => (false, text),
            };
            let below = match root {
                "always_on" => 1 << 63,
                "always_off" => 0,
                "traceidratio" => below,
                _ => return Err(SAMPLERS),
            };
            Ok(Sampling { is_parent_based, below })
        });
        sampler.unwrap_or(Sampling::PARENT_OR_ALL)
    }
}

const SAMPLERS: &str = "always_on, always_off, traceidratio, parentbased_always_on, parentbased_always_off or \
                        parentbased_traceidratio";

/// The address in a URL of HTTP.
fn endpoint(text: &str) -> Option<Endpoint> {
    let is_plain = !text.contains(['?', '#', '@']) && !text.contains(char::is_whitespace);
    let (scheme, rest) = text.split_once("://").filter(|_| is_plain)?;
    let scheme = match scheme.to_ascii_lowercase().as_str() {
        "http" => "ws",
        "https" => "wss",
        _ => return None,
    };
    format!("{scheme}://{rest}").parse().ok()
}

/// What is written as `name=value,name=value`, with values percent-encoded.
fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
        let name = name.trim();
        (!name.is_empty()).then(|| (name.to_owned(), value.into_owned()))
    };
    pairs.map(pair).collect()
}

/// Whether it can be a header of a request, and not one that the request makes itself.
fn is_header((name, value): &(String, String)) -> bool {
    const OURS: [&str; 5] =
        ["host", "content-length", "content-type", "transfer-encoding", "connection"];
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    name.bytes().all(is_token)
        && !OURS.contains(&name.to_ascii_lowercase().as_str())
        && value.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What these variables say, and what is told of them.
    fn read_all(variables: &[(&str, &str)]) -> (Option<TraceSettings>, Vec<String>) {
        let mut remarks = Remarks::default();
        let settings = read(&Environment::new(variables.iter().copied()), &mut remarks);
        (settings, remarks.iter().map(ToString::to_string).collect())
    }

    fn right(variables: &[(&str, &str)]) -> TraceSettings {
        let (settings, told) = read_all(variables);
        assert!(told.is_empty(), "{told:?}");
        settings.expect("a collector is named")
    }

    const BASE: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318");

    #[test]
    fn nothing_is_sent_unless_a_collector_is_named() {
        assert_eq!(read_all(&[]), (None, Vec::new()));
        assert_eq!(read_all(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]), (None, Vec::new()));
        assert_eq!(read_all(&[("OTEL_SERVICE_NAME", "x")]), (None, Vec::new()));
        assert_eq!(read_all(&[BASE, ("OTEL_SDK_DISABLED", "TRUE")]), (None, Vec::new()));
        assert_eq!(read_all(&[BASE, ("OTEL_TRACES_EXPORTER", "none")]), (None, Vec::new()));
        let usual = right(&[("OTEL_TRACES_EXPORTER", "otlp")]);
        assert_eq!(usual.collector, endpoint("http://localhost:4318/v1/traces").unwrap());
    }

    #[test]
    fn the_path_is_added_to_the_address_of_all_signals_only() {
        let traces = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
        for (variables, expected) in [
            (&[BASE][..], "http://c:4318/v1/traces"),
            (&[("OTEL_EXPORTER_OTLP_ENDPOINT", "https://c/otlp/")], "https://c/otlp/v1/traces"),
            (&[BASE, (traces, "http://d:1/own")], "http://d:1/own"),
            (&[(traces, "http://d:1")], "http://d:1/"),
        ] {
            assert_eq!(right(variables).collector, endpoint(expected).unwrap(), "{variables:?}");
        }
    }

    #[test]
    fn what_is_for_traces_wins() {
        let settings = right(&[
            BASE,
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=all"),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "authorization=Bearer%20x%3Dy, b = 2 "),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "1"),
            ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "2500"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem"),
        ]);
        let headers: Vec<_> = settings.headers.iter().map(|(n, v)| (&**n, v.expose())).collect();
        assert_eq!(headers, [("authorization", &b"Bearer x=y"[..]), ("b", b"2")]);
        assert_eq!(settings.timeout, Duration::from_millis(2500));
        assert_eq!(settings.tls.authorities, Some("/ca.pem".into()));
        assert!(!format!("{settings:?}").contains("Bearer"), "{settings:?}");
    }

    #[test]
    fn the_name_of_the_service_wins_over_the_attribute() {
        let names = |variables: &[(&str, &str)]| {
            let mut resource = right(&[&[BASE], variables].concat()).resource;
            resource.pop_if(|(key, _)| key == "service.version").expect("our version is told");
            resource
        };
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(names(&[]), [pair("service.name", "pontoon")]);
        let attributes = ("OTEL_RESOURCE_ATTRIBUTES", "a=1%2C2,service.name=s");
        assert_eq!(names(&[attributes]), [pair("a", "1,2"), pair("service.name", "s")]);
        let both = [attributes, ("OTEL_SERVICE_NAME", "t")];
        assert_eq!(names(&both), [pair("service.name", "t"), pair("a", "1,2")]);
    }

    #[test]
    fn samplers_are_those_of_the_specification() {
        let check = |sampler: &str, argument: &str, is_parent_based, below| {
            let variables =
                [BASE, ("OTEL_TRACES_SAMPLER", sampler), ("OTEL_TRACES_SAMPLER_ARG", argument)];
            let expected = Sampling { is_parent_based, below };
            assert_eq!(right(&variables).sampling, expected, "{sampler}");
        };
        check("", "", true, 1 << 63);
        check("always_on", "0.5", false, 1 << 63);
        check("always_off", "", false, 0);
        check("traceidratio", "0.25", false, 1 << 61);
        check("traceidratio", "", false, 1 << 63);
        check("parentbased_always_off", "", true, 0);
        check("parentbased_traceidratio", "0.5", true, 1 << 62);
    }

    #[test]
    fn every_mistake_is_told_and_no_secret() {
        let wrong = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "hunter2"),
            ("OTEL_SDK_DISABLED", "yes"),
        ];
        let (settings, told) = read_all(&wrong);
        assert_eq!(settings, None);
        let told = told.join("\n");
        assert!(told.contains("OTEL_EXPORTER_OTLP_ENDPOINT: expected a URL"), "{told}");
        assert!(told.contains("OTEL_SDK_DISABLED: expected true or false"), "{told}");
        let check = |name: &str, value: &str, expected: &str| {
            let (_, told) = read_all(&[BASE, (name, value)]);
            assert_eq!(told.len(), 1, "{told:?}");
            let expected = format!("environment: {name}: expected {expected}");
            assert!(told[0].starts_with(&expected), "{told:?}");
            assert!(!told[0].contains("hunter"), "{told:?}");
        };
        check("OTEL_EXPORTER_OTLP_HEADERS", "hunter2", "headers such as");
        check("OTEL_EXPORTER_OTLP_HEADERS", "host=hunter2", "headers such as");
        check("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "a=hunter%0A2", "headers such as");
        check("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf (gRPC is not spoken here");
        check("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "http/protobuf, found");
        check("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip", "none (");
        check("OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "milliseconds");
        check("OTEL_TRACES_EXPORTER", "zipkin", "otlp or none");
        check("OTEL_TRACES_SAMPLER", "jaeger_remote", "always_on, always_off");
        check("OTEL_TRACES_SAMPLER_ARG", "2", "a share from 0 to 1");
        check("OTEL_RESOURCE_ATTRIBUTES", "nothing", "attributes such as");
    }
}
