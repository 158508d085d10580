//! Callers and callees of a function, as `callers` and `callees` write them.

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

use super::top::{Cut, Grouping, Window};

/// `callers --format json` and `callees --format json`: the callers or the callees of a function in one
/// capture.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Butterfly<'a> {
    /// What is measured: the name of a command of `top`.
    pub metric: &'static str,
    /// How the trace was cut from a larger one, if it was; the first cut first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cut: Vec<Cut>,
    /// What the rows are: `callers` or `callees`.
    pub side: &'static str,
    /// The function as it was requested.
    pub function: &'a str,
    /// The functions that match. They count as one.
    pub functions: &'a [String],
    /// The unit of all amounts: `nanoseconds`, `bytes` or `count`.
    pub unit: &'static str,
    /// The analyzed part of the trace.
    pub window: Window,
    /// The sum of everything that was observed.
    pub whole: u64,
    /// The sum with the function anywhere on the stack. The rows add up to it.
    pub total: u64,
    /// The sum with the function as the innermost frame.
    #[serde(rename = "self")]
    pub own: u64,
    /// The part of the total with the function more than once on the stack.
    pub repeated: u64,
    /// How frames were grouped, if they were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grouping: Option<Grouping<'a>>,
    /// The rows, those with the most first.
    pub rows: Vec<ButterflyRow<'a>>,
}

/// A caller or a callee.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ButterflyRow<'a> {
    /// The caller or callee. Null if the function is the outermost frame, or the innermost one.
    pub name: Option<&'a str>,
    /// The sum of stacks with this caller of the outermost occurrence of the function, or with this
    /// callee of the innermost one.
    pub amount: u64,
    /// The number of observations. Null if the measurement adds them up.
    pub count: Option<u64>,
}
