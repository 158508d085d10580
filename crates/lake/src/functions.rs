//! The functions that queries can call with the id of a stack: `symbol`, `frame`, `has_frame` and
//! `folded`.
//!
//! They are null for unknown stacks, and read the names of frames when they are first evaluated.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanBuilder, StringBuilder};
use datafusion::arrow::datatypes::{DataType, Int64Type, UInt64Type};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use stackhound_export::escape::folded_name;

use crate::names::{Index, Matches, Names};

/// All functions, which share the names of frames.
pub fn all(names: &Arc<Names>) -> Vec<Arc<ScalarUDF>> {
    let signature = Signature::user_defined(Volatility::Stable);
    let function = |kind| Function { kind, names: Arc::clone(names), signature: signature.clone() };
    let kinds = [Kind::Symbol, Kind::Frame, Kind::HasFrame, Kind::Folded];
    kinds.map(|kind| Arc::new(ScalarUDF::new_from_impl(function(kind)))).into()
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Kind {
    /// `symbol(stack)`: the innermost frame.
    Symbol,
    /// `frame(stack, n)`: the frame at a depth.
    Frame,
    /// `has_frame(stack, pattern)`: whether a pattern finds a frame.
    HasFrame,
    /// `folded(stack)`: all frames, outermost first.
    Folded,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Symbol => "symbol",
            Kind::Frame => "frame",
            Kind::HasFrame => "has_frame",
            Kind::Folded => "folded",
        }
    }

    /// The type of the argument after the stack.
    fn second(self) -> Option<DataType> {
        match self {
            Kind::Symbol | Kind::Folded => None,
            Kind::Frame => Some(DataType::Int64),
            Kind::HasFrame => Some(DataType::Utf8),
        }
    }
}

struct Function {
    kind: Kind,
    names: Arc<Names>,
    signature: Signature,
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}()", self.kind.name())
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Function) -> bool {
        self.kind == other.kind && Arc::ptr_eq(&self.names, &other.names)
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.kind.hash(state);
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        self.kind.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(if self.kind == Kind::HasFrame { DataType::Boolean } else { DataType::Utf8 })
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let wanted: Vec<DataType> = [DataType::UInt64].into_iter().chain(self.kind.second()).collect();
        let fits = |(given, wanted): (&DataType, &DataType)| match wanted {
            DataType::Utf8 => given.is_string() || given.is_null(),
            _ => given.is_integer() || given.is_null(),
        };
        if types.len() != wanted.len() || !types.iter().zip(&wanted).all(fits) {
            let expected = match self.kind {
                Kind::Symbol | Kind::Folded => "the id of a stack",
                Kind::Frame => "the id of a stack and a number",
                Kind::HasFrame => "the id of a stack and a pattern",
            };
            return plan_err!("{}() expects {expected}", self.kind.name());
        }
        Ok(wanted)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_scalar = arguments.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { arguments.number_rows };
        let arrays = arguments.args.iter().map(|argument| argument.to_array(rows));
        let arrays: Vec<ArrayRef> = arrays.collect::<Result<_>>()?;
        let result = self.evaluate(&arrays)?;
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(datafusion::scalar::ScalarValue::try_from_array(&result, 0)?),
            false => ColumnarValue::Array(result),
        })
    }
}

impl Function {
    fn evaluate(&self, arrays: &[ArrayRef]) -> Result<ArrayRef> {
        let stacks = arrays[0].as_primitive::<UInt64Type>();
        // A query over no rows needs no names.
        if stacks.null_count() == stacks.len() {
            return Ok(datafusion::arrow::array::new_null_array(&self.return_type(&[])?, stacks.len()));
        }
        let index = self.names.index()?;
        match self.kind {
            Kind::Symbol => {
                Ok(texts(index, stacks.iter(), |_, stack| stack.first().map(|frame| index.label(*frame))))
            }
            Kind::Frame => {
                let numbers = arrays[1].as_primitive::<Int64Type>();
                Ok(texts(index, stacks.iter(), |row, stack| {
                    let number = numbers.is_valid(row).then(|| numbers.value(row))?;
                    stack.get(usize::try_from(number).ok()?).map(|frame| index.label(*frame))
                }))
            }
            Kind::Folded => {
                let mut text = String::new();
                let mut builder = StringBuilder::new();
                for stack in stacks.iter().map(|id| index.stack(id?)) {
                    let Some(stack) = stack else {
                        builder.append_null();
                        continue;
                    };
                    text.clear();
                    for frame in stack.iter().rev() {
                        if !text.is_empty() {
                            text.push(';');
                        }
                        text.push_str(&folded_name(index.label(*frame)));
                    }
                    builder.append_value(&text);
                }
                Ok(Arc::new(builder.finish()))
            }
            Kind::HasFrame => {
                let patterns = arrays[1].as_string::<i32>();
                // Nearly always, the pattern is the same in all rows.
                let mut last: Option<(&str, Arc<Matches>)> = None;
                let mut builder = BooleanBuilder::with_capacity(stacks.len());
                for (row, id) in stacks.iter().enumerate() {
                    let pattern = patterns.is_valid(row).then(|| patterns.value(row));
                    let (Some(stack), Some(pattern)) = (id.and_then(|id| index.stack(id)), pattern) else {
                        builder.append_null();
                        continue;
                    };
                    if last.as_ref().is_none_or(|(known, _)| *known != pattern) {
                        last = Some((pattern, self.names.matches(pattern)?));
                    }
                    let matches = last.as_ref().map(|(_, matches)| matches);
                    builder.append_value(
                        matches.is_some_and(|matches| stack.iter().any(|frame| matches.contains(*frame))),
                    );
                }
                Ok(Arc::new(builder.finish()))
            }
        }
    }
}

/// A text for each stack that is known and has one.
fn texts<'i>(
    index: &'i Index,
    stacks: impl Iterator<Item = Option<u64>>,
    text: impl Fn(usize, &'i [crate::names::FrameId]) -> Option<&'i str>,
) -> ArrayRef {
    let mut builder = StringBuilder::new();
    for (row, id) in stacks.enumerate() {
        builder.append_option(id.and_then(|id| index.stack(id)).and_then(|stack| text(row, stack)));
    }
    Arc::new(builder.finish())
}
