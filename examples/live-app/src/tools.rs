//! What an MCP client can do with the application: eleven tools, each of which runs on the main thread.

use pontoon_host::{IntoToolOutput, Json, Pump, Tool, ToolValidationError, Toolset};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::patches::{App, Cord, Patch};

#[derive(Deserialize, JsonSchema)]
struct OfPatch {
    /// The name of the patch.
    patch: String,
}

#[derive(Deserialize, JsonSchema)]
struct NewPatch {
    /// The name of the new patch.
    name: String,
}

#[derive(Deserialize, JsonSchema)]
struct NewObject {
    /// The name of the patch.
    patch: String,
    /// What the object is, such as `cycle~ 440`.
    text: String,
    /// Where it is put: `[x, y]`.
    position: [f64; 2],
}

#[derive(Deserialize, JsonSchema)]
struct OfObject {
    /// The name of the patch.
    patch: String,
    /// The name of the object, such as `obj-1`.
    object: String,
}

#[derive(Deserialize, JsonSchema)]
struct Attribute {
    /// The name of the patch.
    patch: String,
    /// The name of the object, such as `obj-1`.
    object: String,
    /// The name of the attribute, such as `bgcolor`.
    attribute: String,
    /// One or more numbers.
    value: Vec<f64>,
}

#[derive(Deserialize, JsonSchema)]
struct NewCord {
    /// The name of the patch.
    patch: String,
    /// The object that it comes from.
    from: String,
    /// The outlet, counted from zero.
    outlet: u32,
    /// The object that it goes to.
    to: String,
    /// The inlet, counted from zero.
    inlet: u32,
}

#[derive(Deserialize, JsonSchema)]
struct Lines {
    /// How many lines, counted from the newest.
    #[serde(default = "some_lines")]
    lines: usize,
}

fn some_lines() -> usize {
    50
}

/// The tools, to be run by this pump.
pub(crate) fn all(pump: &Pump<App>) -> Result<Toolset, ToolValidationError> {
    let tools = Toolset::new();
    looking(pump, &tools)?;
    changing(pump, &tools)?;
    Ok(tools)
}

/// A tool that comes while the application runs.
pub(crate) fn further(pump: &Pump<App>, name: &str) -> Tool {
    let played = format!("{name} was played");
    let tool = pump.tool(name, move |app, (), _| {
        app.log(played.clone());
        played.clone()
    });
    tool.description("Plays something.")
}

/// A tool that shows when its turn has come.
fn tool<A, R>(
    pump: &Pump<App>,
    name: &'static str,
    function: impl Fn(&mut App, A) -> R + Send + Sync + 'static,
) -> Tool
where
    A: DeserializeOwned + JsonSchema + Send + 'static,
    R: IntoToolOutput,
{
    pump.tool(name, move |app, arguments, _| {
        app.begin(name);
        function(app, arguments)
    })
}

fn looking(pump: &Pump<App>, tools: &Toolset) -> Result<(), ToolValidationError> {
    let look =
        |tool: Tool, description: &str| tools.add(tool.description(description).read_only(true));
    look(
        tool(pump, "list_active_patches", |app, ()| {
            let patches: Vec<_> = app.patches.iter().map(|patch| &patch.name).collect();
            Json(json!({"count": patches.len(), "patches": patches}))
        }),
        "Lists the patches that are open.",
    )?;
    look(
        tool(pump, "get_frontmost_patch", |app, ()| {
            app.patches.last().map(|patch| patch.name.clone()).ok_or("no patch is open")
        }),
        "Gives the name of the patch in front.",
    )?;
    look(
        tool(pump, "get_patch_info", |app, OfPatch { patch }| {
            let patch = app.patch(&patch)?;
            Ok::<_, String>(Json(json!({
                "name": patch.name, "objects": patch.objects.len(), "cords": patch.cords.len(),
            })))
        }),
        "Tells how much is in a patch.",
    )?;
    look(
        tool(pump, "get_objects_in_patch", |app, OfPatch { patch }| {
            app.patch(&patch).map(|patch| Json(json!({"objects": patch.objects})))
        }),
        "Lists the objects of a patch with their places and attributes.",
    )?;
    look(
        tool(pump, "get_patchlines", |app, OfPatch { patch }| {
            app.patch(&patch).map(|patch| Json(json!({"cords": patch.cords})))
        }),
        "Lists the cords of a patch.",
    )?;
    look(
        tool(pump, "get_console_log", |app, Lines { lines }| app.console(lines).join("\n")),
        "Gives the last lines of the console.",
    )
}

fn changing(pump: &Pump<App>, tools: &Toolset) -> Result<(), ToolValidationError> {
    let change = |tool: Tool, description: &str| tools.add(tool.description(description));
    change(
        tool(pump, "create_patch", |app, NewPatch { name }| {
            if app.patches.iter().any(|patch| patch.name == name) {
                return Err(format!("a patch `{name}` is open already"));
            }
            app.patches.push(Patch::new(name));
            Ok(())
        }),
        "Opens a new, empty patch in front.",
    )?;
    change(
        tool(pump, "add_max_object", |app, NewObject { patch, text, position }| {
            let [x, y] = position;
            let id = app.patch(&patch)?.add(text.clone(), position);
            app.log(format!("{patch}: {id} is {text} at {x}, {y}"));
            Ok::<_, String>(Json(json!({"object": id})))
        }),
        "Puts an object into a patch, and gives its name.",
    )?;
    let remove = tool(pump, "remove_max_object", |app, OfObject { patch, object }| {
        app.patch(&patch)?.remove(&object)?;
        app.log(format!("{patch}: {object}"));
        Ok::<_, String>(())
    });
    change(remove.destructive(true), "Removes an object and its cords.")?;
    let set = tool(pump, "set_object_attribute", |app, given: Attribute| {
        let Attribute { patch, object, attribute, value } = given;
        let line = format!("{patch}: {object} {attribute} {value:?}");
        app.patch(&patch)?.object(&object)?.attributes.insert(attribute, value);
        app.log(line);
        Ok::<_, String>(())
    });
    change(set.idempotent(true), "Sets an attribute of an object.")?;
    let connect = tool(pump, "connect_max_objects", |app, given: NewCord| {
        let NewCord { patch, from, outlet, to, inlet } = given;
        let inside = app.patch(&patch)?;
        for object in [&from, &to] {
            inside.object(object)?;
        }
        let line = format!("{patch}: {from}:{outlet} to {to}:{inlet}");
        let cord = Cord { from, outlet, to, inlet };
        if !inside.cords.contains(&cord) {
            inside.cords.push(cord);
        }
        app.log(line);
        Ok::<_, String>(())
    });
    change(connect.idempotent(true), "Draws a cord from an outlet to an inlet.")
}
