//! Traces as tables: their rows are made while a query reads them.
//!
//! Only the columns that a query names are computed. Comparisons of times, ids and names of events
//! with constants are evaluated before a row is made; the engine evaluates them again.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::{DataFusionError, Result as EngineResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, Operator, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::scalar::ScalarValue;
use stackhound::EventView;
use stackhound::symbols::path::SymbolPath;
use stackhound::trace::TraceFiles;
use stackhound_columns::arrow::{Scan, TraceTables, schema};
use stackhound_columns::tables::TableId;

/// Traces of any number of machines.
#[derive(Debug, Default)]
pub struct Traces(Vec<TraceTables>);

impl Traces {
    /// Opens files with traces, or directories with such files. Names are from the files along a
    /// symbol path.
    pub fn open(paths: Vec<PathBuf>, symbol_path: Option<&str>, threads: usize) -> Result<Traces> {
        let symbols = SymbolPath::of_user(symbol_path).context("the symbol path")?;
        if paths.is_empty() {
            return Ok(Traces::default());
        }
        let found = TraceFiles::files(paths).threads(threads).captures()?;
        if let Some(error) = found.skipped.into_iter().next() {
            bail!(error);
        }
        let traces = found.captures.into_iter().map(|capture| TraceTables::new(capture, symbols.clone()));
        Ok(Traces(traces.collect()))
    }

    /// Whether no trace is open.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads some columns of a table of all traces.
    pub fn for_each_batch(
        &self,
        table: TableId,
        columns: &[&str],
        mut read: impl FnMut(&RecordBatch, bool) -> EngineResult<()>,
    ) -> EngineResult<()> {
        let schema = schema(table);
        let columns: Vec<usize> =
            columns.iter().map(|name| schema.index_of(name)).collect::<std::result::Result<_, _>>()?;
        for trace in &self.0 {
            let (mut result, mut is_first) = (Ok(()), true);
            let receive = |batch| {
                result = read(&batch, std::mem::replace(&mut is_first, false));
                if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            let scan = Scan { table, columns: &columns, selects_by_function: false };
            trace
                .scan(scan, |_| ControlFlow::Continue(true), receive)
                .map_err(|error| DataFusionError::External(error.into()))?;
            result?;
        }
        Ok(())
    }
}

/// A table of traces.
#[derive(Debug)]
pub struct TraceTable {
    traces: Arc<Traces>,
    table: TableId,
    schema: SchemaRef,
    partitions: usize,
}

impl TraceTable {
    /// A table of all traces, of which at most so many are read at the same time.
    pub fn new(traces: Arc<Traces>, table: TableId, partitions: usize) -> TraceTable {
        let partitions = partitions.clamp(1, traces.0.len().max(1));
        TraceTable { traces, table, schema: with_folders(&schema(table)), partitions }
    }
}

/// The columns of a table, and those that the names of folders add.
fn with_folders(schema: &Schema) -> SchemaRef {
    let folders = FOLDERS.map(|name| Arc::new(Field::new(name, DataType::Utf8, false)));
    Arc::new(Schema::new(schema.fields().iter().cloned().chain(folders).collect::<Vec<_>>()))
}

/// The columns that engines read from the names of folders.
pub const FOLDERS: [&str; 2] = ["date", "host"];

#[async_trait]
impl TableProvider for TraceTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> EngineResult<Vec<TableProviderFilterPushDown>> {
        let is_used = |filter: &&Expr| self.table == TableId::Events && Test::of(filter).is_some();
        Ok(filters
            .iter()
            .map(|filter| match is_used(filter) {
                true => TableProviderFilterPushDown::Inexact,
                false => TableProviderFilterPushDown::Unsupported,
            })
            .collect())
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        let all = || (0..self.schema.fields().len()).collect();
        let projection: Arc<[usize]> = projection.cloned().unwrap_or_else(all).into();
        let schema = Arc::new(self.schema.project(&projection)?);
        let tests: Arc<[Test]> = filters.iter().filter_map(Test::of).collect();
        let partition = |number| -> Arc<dyn PartitionStream> {
            Arc::new(Part {
                traces: Arc::clone(&self.traces),
                table: self.table,
                projection: Arc::clone(&projection),
                schema: Arc::clone(&schema),
                tests: Arc::clone(&tests),
                number,
                partitions: self.partitions,
            })
        };
        let partitions = (0..self.partitions).map(partition).collect();
        Ok(Arc::new(StreamingTableExec::try_new(schema, partitions, None, None, false, limit)?))
    }
}

/// Some of the traces, which are read one after the other.
#[derive(Clone, Debug)]
struct Part {
    traces: Arc<Traces>,
    table: TableId,
    projection: Arc<[usize]>,
    schema: SchemaRef,
    tests: Arc<[Test]>,
    number: usize,
    partitions: usize,
}

impl PartitionStream for Part {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut builder = RecordBatchReceiverStream::builder(Arc::clone(&self.schema), BATCHES);
        let (part, sender) = (self.clone(), builder.tx());
        // If the engine needs no more rows, it drops the receiver.
        builder.spawn_blocking(move || {
            let send = |batch| match sender.blocking_send(Ok(batch)) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            };
            part.read(send).map_err(|error| DataFusionError::External(error.into()))
        });
        builder.build()
    }
}

/// The batches that wait for the engine.
const BATCHES: usize = 2;

impl Part {
    fn read(&self, mut send: impl FnMut(RecordBatch) -> ControlFlow<()>) -> Result<()> {
        let of_file = schema(self.table).fields().len();
        let columns: Vec<usize> =
            self.projection.iter().copied().filter(|column| *column < of_file).collect();
        let mut has_ended = false;
        for trace in self.traces.0.iter().skip(self.number).step_by(self.partitions) {
            let mut failure = Ok(());
            let receive = |batch| match self.whole(trace, of_file, &batch) {
                Ok(batch) => {
                    let sent = send(batch);
                    has_ended = sent.is_break();
                    sent
                }
                Err(error) => {
                    failure = Err(error);
                    ControlFlow::Break(())
                }
            };
            let scan = Scan { table: self.table, columns: &columns, selects_by_function: false };
            trace.scan(scan, |view| choose(view, &self.tests), receive)?;
            failure?;
            if has_ended {
                break;
            }
        }
        Ok(())
    }

    /// The rows with the columns of folders, in the order of the projection.
    fn whole(&self, trace: &TraceTables, of_file: usize, batch: &RecordBatch) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let mut columns = batch.columns().iter().cloned();
        let constant = |value: &str| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(std::iter::repeat_n(value, rows)))
        };
        let columns = self.projection.iter().filter_map(|column| match column.checked_sub(of_file) {
            None => columns.next(),
            Some(0) => Some(constant(trace.date())),
            Some(_) => Some(constant(trace.host())),
        });
        let columns = columns.collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }
}

/// Whether an event gets a row.
fn choose(view: &EventView<'_>, tests: &[Test]) -> ControlFlow<(), bool> {
    let mut is_chosen = true;
    for test in tests {
        match test.holds(view) {
            ControlFlow::Continue(holds) => is_chosen &= holds,
            ControlFlow::Break(()) => return ControlFlow::Break(()),
        }
    }
    ControlFlow::Continue(is_chosen)
}

/// A comparison of a column with constants. It holds for at least the events of which the comparison
/// is true.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Test {
    Number(NumberColumn, Vec<u64>),
    Text(TextColumn, Vec<String>),
    /// Nanoseconds since 1970, from and to, both included.
    Time(i64, i64),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NumberColumn {
    Id,
    Opcode,
    Version,
    Cpu,
    Pid,
    Tid,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TextColumn {
    Provider,
    Event,
}

impl Test {
    /// The test that an expression of a query stands for, if it is one.
    fn of(expression: &Expr) -> Option<Test> {
        let (column, values) = match expression {
            Expr::BinaryExpr(binary) => {
                let (column, operator, value) = match (&*binary.left, &*binary.right) {
                    (Expr::Column(column), Expr::Literal(value, _)) => (column, binary.op, value),
                    (Expr::Literal(value, _), Expr::Column(column)) => (column, binary.op.swap()?, value),
                    _ => return None,
                };
                if let ScalarValue::TimestampNanosecond(Some(time), _) = value {
                    return if column.name == "time" { Test::time(operator, *time) } else { None };
                }
                if operator != Operator::Eq {
                    return None;
                }
                (column, vec![value])
            }
            Expr::InList(list) if !list.negated => {
                let Expr::Column(column) = &*list.expr else { return None };
                let values = list.list.iter().map(Expr::as_literal);
                (column, values.collect::<Option<Vec<_>>>()?)
            }
            _ => return None,
        };
        let numbers =
            |of| Some(Test::Number(of, values.iter().map(|value| number(value)).collect::<Option<_>>()?));
        let texts = |of| {
            let text = |value: &&ScalarValue| value.try_as_str().flatten().map(str::to_owned);
            Some(Test::Text(of, values.iter().map(text).collect::<Option<_>>()?))
        };
        match &*column.name {
            "id" => numbers(NumberColumn::Id),
            "opcode" => numbers(NumberColumn::Opcode),
            "version" => numbers(NumberColumn::Version),
            "cpu" => numbers(NumberColumn::Cpu),
            "pid" => numbers(NumberColumn::Pid),
            "tid" => numbers(NumberColumn::Tid),
            "provider" => texts(TextColumn::Provider),
            "event" => texts(TextColumn::Event),
            _ => None,
        }
    }

    fn time(operator: Operator, time: i64) -> Option<Test> {
        match operator {
            Operator::Eq => Some(Test::Time(time, time)),
            Operator::Lt | Operator::LtEq => Some(Test::Time(i64::MIN, time)),
            Operator::Gt | Operator::GtEq => Some(Test::Time(time, i64::MAX)),
            _ => None,
        }
    }

    /// Breaks if it can hold for no later event either.
    fn holds(&self, view: &EventView<'_>) -> ControlFlow<(), bool> {
        ControlFlow::Continue(match self {
            Test::Number(column, values) => {
                let value = match column {
                    NumberColumn::Id => Some(view.id().into()),
                    NumberColumn::Opcode => Some(view.opcode().into()),
                    NumberColumn::Version => Some(view.version().into()),
                    NumberColumn::Cpu => view.processor().map(u64::from),
                    NumberColumn::Pid => view.pid().map(|pid| pid.0.into()),
                    NumberColumn::Tid => view.tid().map(|tid| tid.0.into()),
                };
                value.is_some_and(|value| values.contains(&value))
            }
            Test::Text(column, values) => {
                let value = match column {
                    TextColumn::Provider => view.provider(),
                    TextColumn::Event => view.name(),
                };
                values.iter().any(|expected| *expected == *value)
            }
            Test::Time(from, to) => match view.utc().to_unix_nanoseconds() {
                // Events come in the order of time.
                Some(time) if time > *to => return ControlFlow::Break(()),
                Some(time) => *from <= time,
                None => false,
            },
        })
    }
}

/// A constant that is a number. Negative ones are equal to no value of a column.
fn number(value: &ScalarValue) -> Option<u64> {
    match *value {
        ScalarValue::UInt8(Some(value)) => Some(value.into()),
        ScalarValue::UInt16(Some(value)) => Some(value.into()),
        ScalarValue::UInt32(Some(value)) => Some(value.into()),
        ScalarValue::UInt64(Some(value)) => Some(value),
        ScalarValue::Int64(Some(value)) => u64::try_from(value).ok(),
        _ => None,
    }
}
