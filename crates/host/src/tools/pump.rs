//! Tools that work on the application's own thread: calls wait here until the application takes them, in its own loop.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use super::call::ToolCall;
use super::output::{IntoToolOutput, ToolError, ToolOutput};
use super::tool::{Tool, Working, fit, schema_of};

/// How many calls may wait for the application.
const MAX_WAITING: usize = 256;

/// Runs calls of tools where the application wants them: as a rule on its main thread, between two frames or events.
///
/// The functions get the application itself, `&mut`, so it needs no lock and need not be `Send`. Meanwhile the threads
/// of a server go on: pings and lists are answered, and calls that come wait in the queue of the pump, which is
/// bounded. A call that its client gave up before its turn is not made. When the pump is dropped, calls that
/// wait and calls that come fail and say that the application is closing.
///
/// ```
/// use pontoon_host::{Pump, Toolset};
///
/// struct App {
///     lines: Vec<String>,
/// }
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Line {
///     text: String,
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pump = Pump::<App>::new();
/// let write = pump.tool("write", |app, Line { text }, _| {
///     app.lines.push(text);
///     app.lines.len()
/// });
/// let tools = Toolset::new().with(write.description("Writes a line."))?;
///
/// let mut app = App { lines: Vec::new() };
/// // In the loop of the application:
/// pump.run_pending(&mut app);
/// # drop(tools);
/// # Ok(())
/// # }
/// ```
pub struct Pump<C>(Arc<WaitingCalls<C>>);

struct WaitingCalls<C> {
    waiting: Mutex<Turns<C>>,
    came: Condvar,
}

struct Turns<C> {
    jobs: VecDeque<Job<C>>,
    last: u64,
    is_closed: bool,
    wake: Option<Arc<dyn Fn() + Send + Sync>>,
}

struct Job<C> {
    number: u64,
    work: Box<dyn FnOnce(&mut C) + Send>,
}

impl<C: 'static> Pump<C> {
    /// A pump that no call waits at.
    #[expect(clippy::new_without_default, reason = "the type has to be named anyway")]
    pub fn new() -> Self {
        let turns = Turns { jobs: VecDeque::new(), last: 0, is_closed: false, wake: None };
        Self(Arc::new(WaitingCalls { waiting: Mutex::new(turns), came: Condvar::new() }))
    }

    /// A tool whose function runs inside [`Pump::run_pending`]. It is not interrupted: one that takes long should look
    /// at [`ToolCall::is_cancelled`].
    pub fn tool<A, F, R>(&self, name: impl Into<String>, function: F) -> Tool
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        F: Fn(&mut C, A, ToolCall) -> R + Send + Sync + 'static,
        R: IntoToolOutput,
    {
        let (calls, function) = (Arc::clone(&self.0), Arc::new(function));
        let handler = move |arguments, call: ToolCall| -> Working {
            let (calls, function) = (Arc::clone(&calls), Arc::clone(&function));
            Box::pin(async move {
                let arguments: A = fit(arguments)?;
                calls.make(move |context| function(context, arguments, call).into_output()).await
            })
        };
        Tool::with_handler(name, schema_of::<A>(), handler)
    }

    /// Has this function called whenever a call comes, on a thread of the server's: it tells a loop that sleeps, and
    /// does nothing else.
    pub fn wake_with(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.0.lock().wake = Some(Arc::new(wake));
    }

    /// Runs the calls that wait now, and gives how many they were. It never waits.
    pub fn run_pending(&self, context: &mut C) -> usize {
        // Those that come meanwhile have the next turn: a client that calls again and again does not stop the loop.
        let last = self.0.lock().last;
        let mut count = 0;
        loop {
            let mut turns = self.0.lock();
            let is_next = turns.jobs.front().is_some_and(|job| job.number <= last);
            let Some(job) = is_next.then(|| turns.jobs.pop_front()).flatten() else {
                return count;
            };
            drop(turns);
            (job.work)(context);
            count += 1;
        }
    }

    /// Waits until a call comes, but no longer than this, and runs what waits then.
    pub fn run_within(&self, context: &mut C, limit: Duration) -> usize {
        let end = Instant::now().checked_add(limit);
        let mut turns = self.0.lock();
        while turns.jobs.is_empty() {
            let left =
                end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return 0;
            }
            let waited = self.0.came.wait_timeout(turns, left);
            turns = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(turns);
        self.run_pending(context)
    }

    /// How many calls wait.
    pub fn waiting(&self) -> usize {
        self.0.lock().jobs.len()
    }
}

impl<C> Drop for Pump<C> {
    fn drop(&mut self) {
        let mut turns = self.0.lock();
        turns.is_closed = true;
        let jobs = std::mem::take(&mut turns.jobs);
        drop(turns);
        // Those that wait for them hear it.
        drop(jobs);
    }
}

impl<C> std::fmt::Debug for Pump<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pump").finish_non_exhaustive()
    }
}

impl<C: 'static> WaitingCalls<C> {
    /// Waits for the turn of this work, and for its end. Dropping the future before its turn takes it out.
    async fn make(
        self: Arc<Self>,
        work: impl FnOnce(&mut C) -> Result<ToolOutput, ToolError> + Send + 'static,
    ) -> Result<ToolOutput, ToolError> {
        let (answer, answered) = oneshot::channel();
        let number = self.add(Box::new(move |context| {
            let outcome = catch_unwind(AssertUnwindSafe(|| work(context)));
            // It may have been given up while it ran.
            let _ = answer.send(outcome);
        }))?;
        let _turn = Turn { calls: &self, number };
        match answered.await {
            Ok(Ok(outcome)) => outcome,
            // The clients that called it hear what it says.
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => Err(closing()),
        }
    }

    fn add(&self, work: Box<dyn FnOnce(&mut C) + Send>) -> Result<u64, ToolError> {
        let mut turns = self.lock();
        if turns.is_closed {
            return Err(closing());
        }
        if turns.jobs.len() >= MAX_WAITING {
            let what = format!(
                "the application is busy, and {MAX_WAITING} calls wait for it already: the call was not made, try again later"
            );
            return Err(ToolError::of_kind("BusyError", what));
        }
        turns.last += 1;
        let number = turns.last;
        turns.jobs.push_back(Job { number, work });
        let wake = turns.wake.clone();
        drop(turns);
        self.came.notify_one();
        if let Some(wake) = wake {
            wake();
        }
        Ok(number)
    }
}

impl<C> WaitingCalls<C> {
    fn lock(&self) -> MutexGuard<'_, Turns<C>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The turn of a call, given back if the call is given up.
struct Turn<'a, C> {
    calls: &'a WaitingCalls<C>,
    number: u64,
}

impl<C> Drop for Turn<'_, C> {
    fn drop(&mut self) {
        let mut turns = self.calls.lock();
        let place = turns.jobs.iter().position(|job| job.number == self.number);
        let job = place.and_then(|place| turns.jobs.remove(place));
        drop(turns);
        drop(job);
    }
}

fn closing() -> ToolError {
    ToolError::of_kind("ClosingError", "the application is closing: the call was not made")
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::running::{Running, Wanted};
    use crate::tools::{Tools, Toolset};
    use bytes::Bytes;
    use tokio_util::sync::CancellationToken;

    /// What an application has that no other thread may touch.
    type Notes = Rc<std::cell::RefCell<Vec<String>>>;

    #[derive(serde::Deserialize, JsonSchema)]
    struct Note {
        text: String,
    }

    fn rig() -> (Pump<Notes>, Arc<Running>) {
        let pump = Pump::<Notes>::new();
        let note = pump.tool("note", |notes, Note { text }, _| {
            assert_ne!(text, "panic", "as it was told");
            notes.borrow_mut().push(text);
            notes.borrow().len()
        });
        let tools = Tools::new(&[Toolset::new().with(note).unwrap()]).unwrap();
        (pump, Running::new(tools, CancellationToken::new()))
    }

    async fn call(running: &Running, text: &str) -> String {
        let wanted = Wanted {
            id: Bytes::new(),
            name: "note".to_owned(),
            arguments: format!("{{\"text\":\"{text}\"}}").into(),
            meta: None,
            progress: None,
        };
        match running.make(wanted, CancellationToken::new()).await {
            Ok(output) => serde_json::to_value(output).unwrap()["content"][0]["text"]
                .as_str()
                .unwrap()
                .to_owned(),
            Err(error) => format!("{}: {}", error.kind, error.message),
        }
    }

    /// Lets the tasks go on until this number of calls waits.
    async fn until_waiting(pump: &Pump<Notes>, calls: usize) {
        while pump.waiting() != calls {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_call_runs_when_the_application_says_and_with_what_only_it_may_touch() {
        let (pump, running) = rig();
        let mut notes = Notes::default();
        let calls = [call(&running, "one"), call(&running, "two")];
        let [one, two] = calls;
        let application = async {
            until_waiting(&pump, 2).await;
            assert!(notes.borrow().is_empty());
            assert_eq!(pump.run_pending(&mut notes), 2);
            assert_eq!(pump.run_pending(&mut notes), 0);
        };
        let (one, two, ()) = tokio::join!(one, two, application);
        assert_eq!((one.as_str(), two.as_str()), ("1", "2"));
        assert_eq!(*notes.borrow(), ["one", "two"]);
    }

    #[tokio::test]
    async fn a_call_that_was_given_up_before_its_turn_is_not_made() {
        let (pump, running) = rig();
        let mut notes = Notes::default();
        let given_up = tokio::spawn({
            let running = Arc::clone(&running);
            async move { call(&running, "unwanted").await }
        });
        until_waiting(&pump, 1).await;
        given_up.abort();
        assert!(given_up.await.unwrap_err().is_cancelled());
        assert_eq!((pump.waiting(), pump.run_pending(&mut notes)), (0, 0));
        assert!(notes.borrow().is_empty());
    }

    #[tokio::test]
    async fn a_panic_costs_its_call_and_not_the_loop() {
        let (pump, running) = rig();
        let mut notes = Notes::default();
        let application = async {
            until_waiting(&pump, 2).await;
            pump.run_pending(&mut notes)
        };
        let (bad, good, ran) =
            tokio::join!(call(&running, "panic"), call(&running, "fine"), application);
        assert!(bad.starts_with("PanicError") && bad.contains("as it was told"), "{bad}");
        assert_eq!((good.as_str(), ran), ("1", 2));
    }

    #[tokio::test]
    async fn what_waits_hears_that_the_application_is_closing_and_so_does_what_comes() {
        let (pump, running) = rig();
        let closing = async {
            until_waiting(&pump, 1).await;
            drop(pump);
        };
        let (waited, ()) = tokio::join!(call(&running, "late"), closing);
        for said in [waited, call(&running, "later").await] {
            assert!(said.contains("the application is closing"), "{said}");
        }
    }

    #[tokio::test]
    async fn only_so_many_calls_wait() {
        let (pump, running) = rig();
        let calls: Vec<_> = (0..MAX_WAITING)
            .map(|_| {
                let running = Arc::clone(&running);
                tokio::spawn(async move { call(&running, "waits").await })
            })
            .collect();
        until_waiting(&pump, MAX_WAITING).await;
        let refused = call(&running, "too many").await;
        assert!(refused.starts_with("BusyError") && refused.contains("not made"), "{refused}");
        calls.iter().for_each(tokio::task::JoinHandle::abort);
        until_waiting(&pump, 0).await;
    }

    #[test]
    fn a_loop_that_sleeps_is_woken() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (pump, running) = {
            let _inside = runtime.enter();
            rig()
        };
        let mut notes = Notes::default();
        assert_eq!(pump.run_within(&mut notes, Duration::ZERO), 0);
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        pump.wake_with(move || tell.try_send(()).unwrap());
        let calling = std::thread::spawn(move || runtime.block_on(call(&running, "hello")));
        assert_eq!(pump.run_within(&mut notes, Duration::from_secs(30)), 1);
        assert_eq!(calling.join().unwrap(), "1");
        told.try_recv().unwrap();
    }
}
