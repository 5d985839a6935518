//! Everything that is counted and everything that is there, as one page.

mod process;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::outcome::{CallEnding, RequestKind};
use super::server::ServerMetrics;
use super::text::{Page, Type};
use super::{Counter, Limit, Metrics};
use crate::lock::unpoisoned;
use crate::observe::health;
use crate::observe::status::{BridgeStatus, ChildStatus, DiskStatus, ServerState, ServerStatus};

type Servers = [(String, Arc<ServerMetrics>)];

impl Metrics {
    /// Everything as the text that Prometheus reads, as [`CONTENT_TYPE`](super::CONTENT_TYPE) says.
    pub fn render(&self, status: &BridgeStatus) -> String {
        let copy = |(name, server): (&String, &Arc<_>)| (name.clone(), Arc::clone(server));
        let servers: Vec<_> = self.servers.lock().iter().map(copy).collect();
        let mut page = Page::default();
        bridge(&mut page, status);
        requests(&mut page, &servers);
        tools(&mut page, &servers);
        self.addresses(&mut page);
        children(&mut page, &servers);
        present(&mut page, &status.servers);
        kept(&mut page, &status.servers);
        limits(&mut page, status);
        self.refusals(&mut page);
        self.totals(&mut page);
        if let Some(disk) = &status.disk {
            storage(&mut page, disk);
        }
        if let Some(processes) = &status.processes {
            process::own(&mut page, &processes.own);
            process::children(&mut page, processes);
        }
        page.finish()
    }

    fn addresses(&self, page: &mut Page) {
        let addresses = unpoisoned(self.addresses.read());
        let mut counts: Vec<(IpAddr, u64)> =
            addresses.iter().map(|(address, counter)| (*address, counter.count())).collect();
        drop(addresses);
        counts.sort_unstable();
        let mut counts: Vec<_> =
            counts.into_iter().map(|(address, count)| (address.to_string(), count)).collect();
        counts.push(("other".to_owned(), self.other_addresses.count()));
        page.family(
            "pontoon_client_requests_total",
            Type::Counter,
            "HTTP requests for servers by client address; beyond 1000 addresses together as `other`.",
            counts.iter().map(|(address, count)| (vec![("address", address.as_str())], *count)),
        );
    }

    fn refusals(&self, page: &mut Page) {
        page.family(
            "pontoon_refused_total",
            Type::Counter,
            "Requests refused because a limit was reached, by limit.",
            Limit::ALL.iter().map(|limit| {
                (vec![("limit", limit.label())], self.refused[*limit as usize].count())
            }),
        );
    }

    fn totals(&self, page: &mut Page) {
        let mut total = |name, help, counter: &Counter| {
            page.single(name, Type::Counter, help, counter.count());
        };
        total("pontoon_jobs_total", "Jobs begun.", &self.jobs);
        total("pontoon_downloads_total", "Files fetched.", &self.downloads);
        total("pontoon_download_bytes_total", "Bytes of files sent.", &self.download_bytes);
        total("pontoon_sweeps_total", "Passes over the jobs directory.", &self.sweeps);
        total("pontoon_swept_jobs_total", "Jobs removed after their time.", &self.swept_jobs);
        total("pontoon_sweep_errors_total", "What could not be removed.", &self.sweep_errors);
        total("pontoon_log_lines_dropped_total", "Log lines lost.", &self.log_lines_dropped);
        let help = "Spans of traces lost: the collector was away, slow, or did not want them.";
        total("pontoon_spans_dropped_total", help, &self.spans_dropped);
        page.family(
            "pontoon_config_reloads_total",
            Type::Counter,
            "Times the configuration was read again, by whether it was taken over.",
            [("ok", &self.reloads), ("failed", &self.failed_reloads)]
                .map(|(result, counter)| (vec![("result", result)], counter.count())),
        );
    }
}

fn bridge(page: &mut Page, status: &BridgeStatus) {
    page.family(
        "pontoon_build_info",
        Type::Gauge,
        "The version that runs.",
        [(vec![("version", env!("CARGO_PKG_VERSION"))], 1)],
    );
    let ready = u8::from(health::ready(status).0 == 200);
    let help = "1 while requests may be sent here, as /ready tells.";
    page.single("pontoon_ready", Type::Gauge, help, ready);
    let uptime = status.uptime.as_secs_f64();
    page.single("pontoon_uptime_seconds", Type::Gauge, "How long the bridge has run.", uptime);
    let sessions = status.sessions;
    page.single("pontoon_sessions", Type::Gauge, "Open sessions with clients.", sessions);
    let websockets = status.websockets;
    page.single("pontoon_websockets", Type::Gauge, "Open WebSockets of clients.", websockets);
    let living = status.living_children;
    let help = "Child processes in all, also those on their way out.";
    page.single("pontoon_living_children", Type::Gauge, help, living);
}

fn requests(page: &mut Page, servers: &Servers) {
    let counted = servers.iter().flat_map(|(name, server)| {
        RequestKind::ALL.iter().flat_map(move |kind| {
            CallEnding::ALL.iter().map(move |ending| {
                let counter = &server.requests[*kind as usize][*ending as usize];
                (name, kind.label(), ending.label(), counter.count())
            })
        })
    });
    page.family(
        "pontoon_requests_total",
        Type::Counter,
        "MCP requests by server, kind and outcome; combinations that never were are left out.",
        counted.filter(|(.., count)| *count > 0).map(|(name, kind, outcome, count)| {
            (vec![("server", name.as_str()), ("kind", kind), ("outcome", outcome)], count)
        }),
    );
    let help = "MCP requests that ended in an error of any kind.";
    each(page, "pontoon_errors_total", help, servers, ServerMetrics::errors);
    page.histograms(
        "pontoon_request_duration_seconds",
        "How long MCP requests took.",
        servers.iter().map(|(name, it)| (vec![("server", name.as_str())], &it.durations)),
    );
    page.histograms(
        "pontoon_queue_wait_seconds",
        "How long calls waited for their turn; those that need not wait count with 0.",
        servers.iter().map(|(name, it)| (vec![("server", name.as_str())], &it.queue_waits)),
    );
}

/// Calls of tools, by tool as far as the catalogues have them.
fn tools(page: &mut Page, servers: &Servers) {
    let tools = servers.iter().flat_map(|(server, it)| {
        it.tools.all().into_iter().map(move |(tool, numbers)| (server.as_str(), tool, numbers))
    });
    let tools: Vec<_> =
        tools.filter(|(.., it)| it.endings.iter().any(|it| it.count() > 0)).collect();
    let labels = |server, tool| vec![("server", server), ("tool", tool)];
    page.family(
        "pontoon_tool_calls_total",
        Type::Counter,
        "Calls by server, tool and outcome; of what no catalogue has, or of too many tools, as `other`.",
        tools.iter().flat_map(|(server, tool, numbers)| {
            let counted = CallEnding::ALL.iter().zip(&numbers.endings);
            counted.filter(|(_, count)| count.count() > 0).map(move |(ending, count)| {
                let mut labels = labels(*server, tool.as_str());
                labels.push(("outcome", ending.label()));
                (labels, count.count())
            })
        }),
    );
    page.histograms(
        "pontoon_tool_call_duration_seconds",
        "How long calls took, by server and tool.",
        tools.iter().map(|(server, tool, it)| (labels(*server, tool.as_str()), &it.durations)),
    );
}

fn children(page: &mut Page, servers: &Servers) {
    each(page, "pontoon_child_starts_total", "Children started.", servers, |it| it.starts.count());
    let help = "Children that did not start or not shake hands.";
    each(page, "pontoon_child_start_failures_total", help, servers, |it| it.start_failures.count());
    page.histograms(
        "pontoon_child_start_duration_seconds",
        "How long children took to start and shake hands.",
        servers.iter().map(|(name, it)| (vec![("server", name.as_str())], &it.start_durations)),
    );
    page.family(
        "pontoon_child_exits_total",
        Type::Counter,
        "Children that ended: as they were asked to or with success, or abnormally.",
        servers.iter().flat_map(|(name, server)| {
            [("clean", &server.clean_exits), ("abnormal", &server.abnormal_exits)].map(
                |(exit, counter)| {
                    (vec![("server", name.as_str()), ("exit", exit)], counter.count())
                },
            )
        }),
    );
    let help = "Kept children stopped because their clients were quiet.";
    each(page, "pontoon_idle_timeouts_total", help, servers, |it| it.idle_timeouts.count());
    let help = "Calls served by a child that was started ahead.";
    each(page, "pontoon_spare_hits_total", help, servers, |it| it.spare_hits.count());
    let help = "Calls that found no child started ahead.";
    each(page, "pontoon_spare_misses_total", help, servers, |it| it.spare_misses.count());
}

/// A counter of each server.
fn each(
    page: &mut Page,
    name: &str,
    help: &str,
    servers: &Servers,
    count: impl Fn(&ServerMetrics) -> u64,
) {
    let samples = servers.iter().map(|(name, it)| (vec![("server", name.as_str())], count(it)));
    page.family(name, Type::Counter, help, samples);
}

fn present(page: &mut Page, servers: &[ServerStatus]) {
    page.family(
        "pontoon_server_state",
        Type::Gauge,
        "1 for the state a server is in.",
        servers.iter().flat_map(|server| {
            ServerState::NAMES.map(|state| {
                let labels = vec![("server", server.name.as_str()), ("state", state)];
                (labels, u8::from(server.state.name() == state))
            })
        }),
    );
    page.family(
        "pontoon_running_calls",
        Type::Gauge,
        "Calls under way.",
        servers.iter().map(|it| (vec![("server", it.name.as_str())], it.running)),
    );
    page.family(
        "pontoon_children",
        Type::Gauge,
        "Child processes by server and mode, spares included.",
        servers.iter().map(|it| (vec![("server", it.name.as_str()), ("mode", it.mode)], it.living)),
    );
    page.family(
        "pontoon_spares",
        Type::Gauge,
        "Children started ahead and not used yet.",
        servers.iter().map(|it| (vec![("server", it.name.as_str())], it.spares)),
    );
    page.family(
        "pontoon_isolation_info",
        Type::Gauge,
        "The isolation that the children of a server have.",
        servers.iter().map(|it| (vec![("server", it.name.as_str()), ("level", it.isolation)], 1)),
    );
    page.family(
        "pontoon_heals_total",
        Type::Counter,
        "Violations of the protocol by servers, by code.",
        servers.iter().flat_map(|it| {
            it.heals
                .iter()
                .map(|(code, count)| (vec![("server", it.name.as_str()), ("code", *code)], *count))
        }),
    );
}

/// Kept children. Which they are is not told: that would be a new series for each.
fn kept(page: &mut Page, servers: &[ServerStatus]) {
    page.family(
        "pontoon_stateful_children",
        Type::Gauge,
        "Children kept for clients.",
        servers.iter().map(|it| (vec![("server", it.name.as_str())], it.children.len())),
    );
    let mut most = |name, help, age: fn(&ChildStatus) -> Duration| {
        let samples = servers.iter().map(|server| {
            let most = server.children.iter().map(age).max().unwrap_or_default();
            (vec![("server", server.name.as_str())], most.as_secs_f64())
        });
        page.family(name, Type::Gauge, help, samples);
    };
    let help = "How long the oldest kept child has lived; 0 without any.";
    most("pontoon_stateful_child_oldest_seconds", help, |it| it.age);
    let help =
        "How long ago that kept child was last used that was left alone longest; 0 without any.";
    most("pontoon_stateful_child_idle_longest_seconds", help, |it| it.idle);
}

fn limits(page: &mut Page, status: &BridgeStatus) {
    let help = "Calls that wait for their turn (MCPO_QUEUE_WAIT).";
    page.single("pontoon_waiting_calls", Type::Gauge, help, status.waiting_calls);
    let help = "Bytes held for clients: bodies and answers that are not small.";
    page.single("pontoon_held_bytes", Type::Gauge, help, status.held_bytes.used);
    let help = "How many bytes may be held for clients (MCPO_MEMORY_BUDGET).";
    page.single("pontoon_held_bytes_limit", Type::Gauge, help, status.held_bytes.limit);
    let limits = [
        ("concurrent", status.permits),
        ("kept_calls", status.kept_calls),
        ("total_processes", status.kept_children),
    ];
    page.family(
        "pontoon_permits_in_use",
        Type::Gauge,
        "How much of each limit is in use.",
        limits.map(|(name, usage)| (vec![("limit", name)], usage.used)),
    );
    page.family(
        "pontoon_permits_limit",
        Type::Gauge,
        "Each limit.",
        limits.map(|(name, usage)| (vec![("limit", name)], usage.limit)),
    );
}

fn storage(page: &mut Page, disk: &DiskStatus) {
    let mut tell = |name, help, value: u64| page.single(name, Type::Gauge, help, value);
    tell("pontoon_jobs_on_disk", "Jobs that are kept.", disk.jobs as u64);
    tell("pontoon_jobs_bytes", "Bytes of the jobs that are kept.", disk.bytes);
    tell("pontoon_disk_free_bytes", "Free bytes where the jobs are.", disk.free);
    tell("pontoon_disk_size_bytes", "Bytes in all where the jobs are.", disk.total);
    let help = "With less than this free no call is taken that needs a job (MCPO_MIN_FREE_DISK).";
    tell("pontoon_disk_min_free_bytes", help, disk.min_free);
}
