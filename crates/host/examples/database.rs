//! An open database as the context of several tools: no tool opens it anew, and none has a copy.
//!
//! ```text
//! cargo run -p pontoon-host --features model --example database -- "Order 3 apples, then tell me the stock."
//! ```

#![allow(clippy::print_stdout, reason = "it is what the example shows")]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use pontoon_host::model::{Model, ToolsetOptions};
use pontoon_host::{Json, Tool, ToolError, Toolset, bridge};

/// Stands for a pool of connections to your database.
#[derive(Default)]
struct Database {
    stock: Mutex<BTreeMap<String, u32>>,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Order {
    /// What is ordered.
    item: String,
    /// How many.
    count: u32,
}

impl Database {
    /// Takes from the stock, and gives what is left.
    fn take(&self, order: &Order) -> Result<u32, String> {
        let mut stock = self.stock.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(left) = stock.get_mut(&order.item) else {
            return Err(format!("there are no {}", order.item));
        };
        *left = left.checked_sub(order.count).ok_or(format!("only {left} are left"))?;
        Ok(*left)
    }

    fn all(&self) -> BTreeMap<String, u32> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    // Claude Code starts this program as the bridge to its tools.
    if let Some(exit) = bridge::dispatch() {
        return Ok(exit);
    }
    tokio::runtime::Runtime::new()?.block_on(ask())?;
    Ok(ExitCode::SUCCESS)
}

async fn ask() -> Result<(), Box<dyn std::error::Error>> {
    let stock = BTreeMap::from([("apples".to_owned(), 10), ("pears".to_owned(), 2)]);
    let database = Arc::new(Database { stock: Mutex::new(stock) });
    let order = Tool::with_context("order", &database, |database, order: Order, _| async move {
        database.take(&order).map_err(|why| ToolError::of_kind("OrderError", why))
    });
    let show =
        Tool::with_context(
            "stock",
            &database,
            |database, (), _| async move { Json(database.all()) },
        );
    let tools = Toolset::new()
        .with(order.description("Orders from the stock, and gives what is left."))?
        // What only reads may be called several times at once.
        .with(show.description("Gives the stock.").read_only(true))?;
    let model = Model::default();
    model.set_agent_toolsets_with(&[tools], ToolsetOptions::default().server_name("shop"))?;
    let prompt =
        std::env::args().nth(1).unwrap_or("Order 3 apples, then tell me the stock.".to_owned());
    println!("{}", model.request(prompt).await?.text);
    println!("In the database: {:?}", database.all());
    Ok(())
}
