//! Big results for a client of each era, beside a plain HTTP server that sends as many bytes, a native
//! server that writes them as JSON, and the pipe.
//!
//! The server is of the legacy era, so that what it says is translated for the modern client. Each era has
//! a bridge of its own, whose peak of memory is its own.

use std::net::SocketAddr;

use crate::Plan;
use crate::bridge::Bridge;
use crate::client::{Http, HttpCaller, PipeCaller, tool_call};
use crate::load::{Side, median, order, zip};
use crate::native;
use crate::process::size;
use crate::server::Server;
use crate::table::{Goal, Table, millis, times};

const MIB: usize = 1024 * 1024;

const ERAS: [&str; 2] = ["legacy", "modern"];

/// Measures results of 1 and of 8 MiB.
pub(crate) fn measure(plan: &Plan, table: &mut Table) {
    let server = Server::cheap(&plan.cheap, &["--era", "legacy"]);
    let start = |build| ERAS.map(|_| Bridge::start(build, "stateful", &server));
    let bridges: Vec<_> = plan.builds.iter().map(|build| start(build)).collect();
    let (_http_server, address) = native::start_http();
    let mut runs = [MIB, 8 * MIB].map(|bytes| Run::new(bytes, &bridges, &server, address));
    let (rounds, length) = plan.rounds();
    for round in 0..rounds {
        for run in &mut runs {
            order(run.ours.len(), round).for_each(|at| run.ours[at].turn(length));
            [&mut run.http, &mut run.native].into_iter().for_each(|lane| lane.turn(length));
            run.pipe.turn(length);
        }
    }
    for (name, run) in ["1 MiB", "8 MiB"].into_iter().zip(&runs) {
        run.tell(name, table);
    }
    let [small, big] = &runs;
    for (at, era) in ERAS.into_iter().enumerate() {
        let grown: Vec<_> = small.of_era(at).iter().zip(big.of_era(at)).map(growth).collect();
        let what = format!("8 MiB over 1 MiB: {era} client");
        table.tell(&what, &grown, times, Goal::AtMost(10.0));
    }
    let pipe = growth((&small.pipe.p50(), big.pipe.p50()));
    table.note("8 MiB over 1 MiB: HTTP alone", times(growth((&small.http.p50(), big.http.p50()))));
    table.note("8 MiB over 1 MiB: pipe alone", times(pipe));
    for (at, era) in ERAS.into_iter().enumerate() {
        let peak =
            |bridges: &[Bridge; 2]| size(bridges[at].id(), "VmHWM") as f64 / (8 * MIB) as f64;
        let peaks: Vec<_> = bridges.iter().map(peak).collect();
        let what = format!("8 MiB results: peak memory over that, {era} client");
        table.tell(&what, &peaks, times, Goal::AtMost(4.0));
    }
}

fn growth((small, big): (&Vec<f64>, Vec<f64>)) -> f64 {
    median(&zip(&big, small, |big, small| big / small))
}

/// One caller, and what it did.
struct Lane<C>([C; 1], Side);

impl<C: crate::client::Caller> Lane<C> {
    fn new(caller: C) -> Self {
        Self([caller], Side::default())
    }

    fn turn(&mut self, length: std::time::Duration) {
        self.1.turn(&mut self.0, length);
    }

    fn p50(&self) -> Vec<f64> {
        self.1.quantiles(0.5)
    }
}

/// Everything that takes turns with results of one size.
struct Run {
    /// The eras of the first build, then those of the next.
    ours: Vec<Lane<HttpCaller>>,
    http: Lane<HttpCaller>,
    native: Lane<HttpCaller>,
    pipe: Lane<PipeCaller>,
}

impl Run {
    fn new(bytes: usize, bridges: &[[Bridge; 2]], server: &Server, address: SocketAddr) -> Self {
        let arguments = format!("{{\"bytes\":{bytes}}}");
        let call = tool_call("big", &arguments);
        let of_build = |[legacy, modern]: &[Bridge; 2]| {
            let (address, path) = (modern.address(), modern.path());
            [legacy.client(&call), HttpCaller::modern(address, &path, "big", &arguments)]
        };
        let mut ours: Vec<_> = bridges.iter().flat_map(of_build).collect();
        let lengths: Vec<_> = ours.iter_mut().map(|caller| caller.answer().len()).collect();
        assert!(lengths.iter().all(|length| *length >= bytes), "too short: {lengths:?}");
        let path = format!("/{}", lengths[0]);
        let http = HttpCaller::new(Http::connect(address), &path, &call);
        let mut native = HttpCaller::new(Http::connect(address), "/mcp", &call);
        assert_eq!(native.answer().len(), lengths[0], "the native server answers the same");
        let pipe = PipeCaller::start(&mut server.command(), &call);
        let ours = ours.into_iter().map(Lane::new).collect();
        let (http, native, pipe) = (Lane::new(http), Lane::new(native), Lane::new(pipe));
        Self { ours, http, native, pipe }
    }

    /// The p50 of each turn of each build, for a client of one era.
    fn of_era(&self, era: usize) -> Vec<Vec<f64>> {
        self.ours.iter().skip(era).step_by(ERAS.len()).map(Lane::p50).collect()
    }

    fn tell(&self, name: &str, table: &mut Table) {
        let both = zip(&self.http.p50(), &self.pipe.p50(), |http, pipe| http + pipe);
        // At least 0.7 of what the native server gives in a second.
        let goal = if name == "8 MiB" { Goal::AtMost(1.43) } else { Goal::None };
        for (at, era) in ERAS.into_iter().enumerate() {
            let ours = self.of_era(at);
            let what = |beside| format!("{name} result, {era} client: p50 beside {beside}");
            table.compare(&what("a native server"), &ours, &self.native.p50(), millis, goal);
            table.compare(&what("HTTP alone"), &ours, &self.http.p50(), millis, Goal::None);
            table.compare(&what("HTTP and pipe"), &ours, &both, millis, Goal::None);
        }
    }
}
