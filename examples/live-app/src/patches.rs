//! What the application is about: patches of objects with cords between them, and a console. It all belongs to the
//! main thread, so nothing here knows of locks or of other threads.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::Serialize;

/// How many lines the console keeps.
const CONSOLE_LINES: usize = 1000;

/// The application.
#[derive(Debug, Default)]
pub(crate) struct App {
    /// The patches that are open, the frontmost one last.
    pub(crate) patches: Vec<Patch>,
    console: VecDeque<String>,
    /// The tool that it hangs at the next time, and for how long.
    pub(crate) hangs_at: Option<(String, Duration)>,
}

/// A patch.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Patch {
    /// Its name, which no other has.
    pub(crate) name: String,
    /// Its objects.
    pub(crate) objects: Vec<PatchObject>,
    /// Its cords.
    pub(crate) cords: Vec<Cord>,
    #[serde(skip)]
    last_object: usize,
}

/// An object of a patch.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PatchObject {
    /// Its name in the patch, such as `obj-1`.
    pub(crate) id: String,
    /// What it is, such as `cycle~ 440`.
    pub(crate) text: String,
    /// Where it is.
    pub(crate) position: [f64; 2],
    /// Its attributes.
    pub(crate) attributes: BTreeMap<String, Vec<f64>>,
}

/// A cord from an outlet to an inlet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Cord {
    /// The object that it comes from.
    pub(crate) from: String,
    /// The outlet, counted from zero.
    pub(crate) outlet: u32,
    /// The object that it goes to.
    pub(crate) to: String,
    /// The inlet, counted from zero.
    pub(crate) inlet: u32,
}

impl App {
    /// An application with one patch that makes a sound.
    pub(crate) fn with_a_demo() -> Self {
        let mut demo = Patch::new("demo".to_owned());
        let [tone, speaker] = [("cycle~ 440", [40.0, 40.0]), ("ezdac~", [40.0, 120.0])]
            .map(|(text, position)| demo.add(text.to_owned(), position));
        demo.cords.push(Cord { from: tone, outlet: 0, to: speaker, inlet: 0 });
        Self { patches: vec![demo], ..Self::default() }
    }

    /// Writes a line to the console, and shows it.
    #[expect(clippy::print_stdout, reason = "the terminal is the window of this application")]
    pub(crate) fn log(&mut self, line: String) {
        println!("{line}");
        if self.console.len() == CONSOLE_LINES {
            self.console.pop_front();
        }
        self.console.push_back(line);
    }

    /// The turn of a tool has come.
    pub(crate) fn begin(&mut self, tool: &str) {
        self.log(format!("{tool} begins"));
        if let Some((_, time)) = self.hangs_at.take_if(|(at, _)| at == tool) {
            self.hang(time);
        }
    }

    /// Does nothing at all for so long, as an application does that has much to compute.
    pub(crate) fn hang(&mut self, time: Duration) {
        self.log("hangs".to_owned());
        std::thread::sleep(time);
        self.log("is back".to_owned());
    }

    /// The last lines of the console.
    pub(crate) fn console(&self, lines: usize) -> Vec<&str> {
        let skipped = self.console.len().saturating_sub(lines);
        self.console.iter().skip(skipped).map(String::as_str).collect()
    }

    /// The patch of this name, or what is wrong and what there is instead: the model reads it.
    pub(crate) fn patch(&mut self, name: &str) -> Result<&mut Patch, String> {
        let names: Vec<_> = self.patches.iter().map(|patch| patch.name.clone()).collect();
        let found = self.patches.iter_mut().find(|patch| patch.name == name);
        found.ok_or_else(|| format!("no patch `{name}` is open; open are: {}", names.join(", ")))
    }
}

impl Patch {
    /// An empty patch.
    pub(crate) fn new(name: String) -> Self {
        Self { name, ..Self::default() }
    }

    /// Adds an object, and gives its name.
    pub(crate) fn add(&mut self, text: String, position: [f64; 2]) -> String {
        self.last_object += 1;
        let id = format!("obj-{}", self.last_object);
        let attributes = BTreeMap::new();
        self.objects.push(PatchObject { id: id.clone(), text, position, attributes });
        id
    }

    /// The object of this name.
    pub(crate) fn object(&mut self, id: &str) -> Result<&mut PatchObject, String> {
        let name = &self.name;
        let found = self.objects.iter_mut().find(|object| object.id == id);
        found.ok_or_else(|| {
            format!("there is no object `{id}` in `{name}`: see get_objects_in_patch")
        })
    }

    /// Removes an object with its cords.
    pub(crate) fn remove(&mut self, id: &str) -> Result<(), String> {
        self.object(id)?;
        self.objects.retain(|object| object.id != id);
        self.cords.retain(|cord| cord.from != id && cord.to != id);
        Ok(())
    }
}
