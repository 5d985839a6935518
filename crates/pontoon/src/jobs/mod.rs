//! Jobs: what calls leave on disk, who may have it, and when it goes.
//!
//! ```text
//! {jobs}/{uuid}/                 one call: its records, and files/ with what it made
//! {jobs}/.sessions/{hash}/files  the working directory of a session, over its calls
//! {jobs}/.sessions/{hash}/server.log  what its processes said, and how they ended
//! {jobs}/.sessions/{hash}/holder      the bridge whose process keeps state in memory
//! {jobs}/.t/                     temporary files of children
//! {jobs}/.instances, .journal, .trash, .key
//! ```
//!
//! Only what is in `files/` of a job is ever served. The directory may be shared: every bridge
//! keeps what it uses fresh ([`Store::heartbeat`]), and collects only what nobody does.
//!
//! This stands beside the path of a call and knows nothing of it. It blocks on the disk, so it is
//! called from threads that may.

mod beneath;
mod changes;
mod claim;
mod deferred;
mod deliver;
mod disk;
mod download;
mod holder;
mod instance;
mod job;
mod journal;
mod key;
mod links;
mod log;
mod mend;
mod names;
mod node;
mod record;
mod recover;
mod remove;
mod root;
mod scratch;
mod shared;
mod snapshot;
mod store;
mod sweep;
mod trash;
mod usage;
mod walk;
mod workspace;
mod workspaces;
mod writer;

pub use changes::NewFiles;
pub use claim::{Claim, Held};
pub use disk::{DiskUsage, JobError, is_full};
pub use download::{Download, NotServed};
pub use job::{Adopted, Finished, Job};
pub use journal::{EndedCall, JournalLine};
pub use links::Links;
pub use names::{is_served, media_type};
pub use record::{CallFacts, CallStatus};
pub use root::StoreError;
pub use scratch::Scratch;
pub use shared::{StoreOptions, Unusable};
pub use snapshot::{Made, Snapshot};
pub use store::Store;
pub use sweep::{NotRemoved, Swept};
pub use walk::Bounds;
pub use workspace::{SessionWorkspace, WorkspaceCall};
pub use writer::Writer;
