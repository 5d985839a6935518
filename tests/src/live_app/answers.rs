//! What an application answers, and what its tools do.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::Shared;

impl Shared {
    /// What it says to a message: the answer, and what follows from it.
    pub(super) fn answers(&self, message: &Value) -> Vec<Value> {
        let method = message["method"].as_str().unwrap_or_default().to_owned();
        self.heard.lock().expect("no thread panics with it").push(method);
        let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
        if message["params"]["name"] == "ask" && message["method"] == "tools/call" {
            self.deeds.add(message["params"]["arguments"]["text"].as_str().unwrap_or_default());
            let params = json!({"message": "which one?", "requestedSchema": {"type": "object", "properties": {}}});
            return vec![
                json!({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": params}),
            ];
        }
        let params = &message["params"];
        let (tells, has_grown) = (params["name"] == "tell", params["name"] == "grow");
        let note = params["arguments"].get("note").filter(|_| tells).cloned();
        let progress = params["_meta"].get("progressToken").filter(|_| tells).map(|token| {
            let said = json!({"progressToken": token, "progress": 1, "message": params["arguments"]["text"]});
            json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": said})
        });
        let before = note.into_iter().chain(progress);
        before.chain(self.answer(message)).chain(has_grown.then_some(changed)).collect()
    }

    /// What it answers, if anything.
    fn answer(&self, message: &Value) -> Option<Value> {
        let id = message.get("id")?;
        let method = message.get("method")?.as_str()?;
        let manner = self.manner.lock().expect("no thread panics with it").clone();
        let result = match (method, manner.is_modern) {
            ("initialize", false) => {
                let mut capabilities = json!({"tools": {}, "logging": {}});
                if manner.has_resources {
                    capabilities["resources"] = json!({"subscribe": true});
                }
                Ok(json!({
                    "protocolVersion": message["params"]["protocolVersion"],
                    "capabilities": capabilities,
                    "serverInfo": {"name": "live-app", "version": manner.version},
                }))
            }
            ("server/discover", true) => Ok(json!({
                "resultType": "complete",
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}},
                "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "live-app", "version": "1"}},
            })),
            ("logging/setLevel", false) => Ok(json!({})),
            (method, false) if manner.has_resources && method.starts_with("resources/") => self
                .resource(method, message["params"]["uri"].as_str().unwrap_or_default())
                .map(Ok)?,
            ("tools/list", is_modern) => {
                let mut result = json!({"tools": tools(&manner.more_tools)});
                if is_modern {
                    result["resultType"] = json!("complete");
                    result["ttlMs"] = json!(0);
                    result["cacheScope"] = json!("private");
                }
                Ok(result)
            }
            ("tools/call", _) if message["params"]["name"] == "fail" => {
                let arguments = &message["params"]["arguments"];
                self.deeds.add(arguments["text"].as_str().unwrap_or_default());
                Err(json!({"code": -32603, "message": arguments["error"]}))
            }
            ("tools/call", is_modern) => {
                let mut result = self.call(&message["params"])?;
                if is_modern {
                    result["resultType"] = json!("complete");
                }
                Ok(result)
            }
            // One that waits for events, of which there are none.
            ("subscriptions/listen", true) => return None,
            _ => Err(json!({"code": -32601, "message": format!("there is no `{method}`")})),
        };
        Some(match result {
            Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Err(error) => json!({"jsonrpc": "2.0", "id": id, "error": error}),
        })
    }

    fn resource(&self, method: &str, uri: &str) -> Option<Value> {
        Some(match method {
            "resources/list" => json!({"resources": [{"uri": "app://scene", "name": "scene"}]}),
            "resources/templates/list" => json!({"resourceTemplates": []}),
            "resources/read" => {
                if self.deeds.add(uri) == 1 && uri == "app://once" {
                    self.drop_connections();
                    return None;
                }
                json!({"contents": [{"uri": uri, "text": uri}]})
            }
            _ => json!({}),
        })
    }

    fn call(&self, params: &Value) -> Option<Value> {
        let (tool, arguments) = (params["name"].as_str().unwrap_or_default(), &params["arguments"]);
        let text = arguments["text"].as_str().unwrap_or_default();
        let times = self.deeds.add(text);
        match tool {
            "die" => {
                self.drop_connections();
                return None;
            }
            "die_once" if times == 1 => {
                self.drop_connections();
                return None;
            }
            "wait" => thread::sleep(Duration::from_millis(arguments["ms"].as_u64().unwrap_or(0))),
            "silent" => return None,
            "read" if arguments["ms"] == "for ever" => return None,
            "grow" => self
                .manner
                .lock()
                .expect("no thread panics with it")
                .more_tools
                .push(text.to_owned()),
            _ => {}
        }
        Some(json!({"content": [{"type": "text", "text": text}]}))
    }
}

fn tools(more: &[String]) -> Vec<Value> {
    let tool = |name: &str, annotations: Value| json!({"name": name, "inputSchema": {"type": "object"}, "annotations": annotations});
    let mut tools = vec![
        tool("echo", json!({})),
        tool("read", json!({"readOnlyHint": true})),
        tool("die", json!({})),
        tool("die_once", json!({"idempotentHint": true})),
        tool("wait", json!({})),
        tool("silent", json!({})),
        tool("fail", json!({})),
        tool("grow", json!({})),
        tool("ask", json!({})),
        tool("tell", json!({})),
    ];
    tools.extend(more.iter().map(|name| tool(name, json!({}))));
    tools
}
