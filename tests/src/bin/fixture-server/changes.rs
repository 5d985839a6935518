//! Changes: what a tool can make change, and who hears of it.
//!
//! Legacy clients hear of every list; modern ones of what a `subscriptions/listen` asked for.

use serde_json::{Map, Value, json};

use crate::call::Call;
use crate::message::{META_SUBSCRIPTION, RpcError};
use crate::server::{Era, Server, lock};

/// The lists that a tool can change.
#[derive(Clone, Copy)]
pub(crate) enum List {
    Tools,
    Prompts,
    Resources,
}

/// Which lists have their extra entry at the moment, and the open subscriptions.
#[derive(Default)]
pub(crate) struct Changes {
    has_extra: [bool; 3],
    listeners: Vec<Listener>,
}

struct Listener {
    id: Value,
    filter: Map<String, Value>,
}

impl Changes {
    /// Whether `list` has its extra entry.
    pub(crate) fn has_extra(&self, list: List) -> bool {
        self.has_extra[list as usize]
    }
}

/// Adds the extra entry to `list`, or takes it away, and says so.
pub(crate) fn toggle(call: &Call, list: List) {
    let (key, method) = match list {
        List::Tools => ("toolsListChanged", "notifications/tools/list_changed"),
        List::Prompts => ("promptsListChanged", "notifications/prompts/list_changed"),
        List::Resources => ("resourcesListChanged", "notifications/resources/list_changed"),
    };
    let mut changes = lock(&call.server.changes);
    let extra = &mut changes.has_extra[list as usize];
    *extra = !*extra;
    match call.era {
        Era::Legacy => call.server.notify(method, &Value::Null),
        Era::Modern => {
            let wants = |filter: &Map<String, Value>| filter.get(key) == Some(&Value::Bool(true));
            changes.tell(&call.server, method, &json!({}), wants);
        }
    }
}

/// Says that the resource at `uri` changed, to those who watch it.
pub(crate) fn touch(call: &Call, uri: &str) {
    let method = "notifications/resources/updated";
    let params = json!({ "uri": uri });
    match call.era {
        Era::Legacy => {
            if lock(&call.server.session).watched.contains(uri) {
                call.server.notify(method, &params);
            }
        }
        Era::Modern => {
            let wants = |filter: &Map<String, Value>| {
                let watched = filter.get("resourceSubscriptions").and_then(Value::as_array);
                watched.is_some_and(|watched| watched.iter().any(|watched| watched == uri))
            };
            lock(&call.server.changes).tell(&call.server, method, &params, wants);
        }
    }
}

/// Opens a subscription. It is answered only when the server ends it, which this one never does.
pub(crate) fn listen(call: &Call) {
    let Some(Value::Object(wanted)) = call.params.get("notifications") else {
        let error = RpcError::new(-32602, "`notifications` must be an object");
        return call.server.send_error(&call.id, &error);
    };
    let mut filter = wanted.clone();
    filter.retain(|key, value| match key.as_str() {
        "toolsListChanged" | "promptsListChanged" | "resourcesListChanged" => value == true,
        "resourceSubscriptions" => value.is_array(),
        _ => false,
    });
    // The lock is held over the write: nothing may be said on the subscription before this.
    let mut changes = lock(&call.server.changes);
    let params = json!({ "_meta": { META_SUBSCRIPTION: call.id }, "notifications": filter });
    call.server.notify("notifications/subscriptions/acknowledged", &params);
    changes.listeners.push(Listener { id: call.id.clone(), filter });
}

/// Ends the subscription that request `id` opened, if there is one.
pub(crate) fn stop_listening(server: &Server, id: &Value) {
    lock(&server.changes).listeners.retain(|listener| listener.id != *id);
}

impl Changes {
    fn tell(
        &self,
        server: &Server,
        method: &str,
        params: &Value,
        wants: impl Fn(&Map<String, Value>) -> bool,
    ) {
        for listener in self.listeners.iter().filter(|listener| wants(&listener.filter)) {
            let mut params = params.clone();
            params["_meta"] = json!({ META_SUBSCRIPTION: listener.id });
            server.notify(method, &params);
        }
    }
}
