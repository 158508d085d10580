//! Looks up the values of fields of an event.

use std::ops::ControlFlow;

use stackhound_etl::record::Descriptor;
use stackhound_expr::{Value, Visitor};
use stackhound_frames::{Backing, CallOutcome, CreateEnd, Frame, RegionKind, Summary};
use stackhound_schema::{Array, Field, InType, Item, OutType, Value as FieldValue};
use stackhound_symbols::ResolvedFrame;
use stackhound_types::{AddressKind, Guid, Mode, Rfc3339};

use super::field::{FrameFact, Name};
use super::shown::{guid, shown};
use crate::event_view::EventView;
use crate::label::{Label, stem};

/// Visits the values that the event has for a field.
pub(super) fn look_up(view: &EventView<'_>, name: &Name, visit: &mut Visitor<'_>) -> ControlFlow<()> {
    let completed = || view.call().and_then(CallOutcome::completed);
    match name {
        Name::Time => shown(Rfc3339(view.utc()), visit),
        Name::Ts => visit(Value::Signed(view.raw_time().0)),
        Name::Cpu => unsigned(view.processor(), visit),
        Name::Pid => unsigned(view.pid().map(|pid| pid.0), visit),
        Name::Tid => unsigned(view.tid().map(|tid| tid.0), visit),
        Name::Process => text(view.process_name(), visit),
        Name::Provider => {
            visit(Value::Text(&view.provider()))?;
            some_guid(view.provider_guid(), visit)
        }
        Name::ProviderGuid => some_guid(view.provider_guid(), visit),
        Name::Event => visit(Value::Text(&view.name())),
        Name::Id => visit(Value::Unsigned(view.id().into())),
        Name::Opcode => visit(Value::Unsigned(view.opcode().into())),
        Name::Version => visit(Value::Unsigned(view.version().into())),
        Name::Level => unsigned(view.event().record().level(), visit),
        Name::Keyword => unsigned(descriptor(view).map(|descriptor| descriptor.keyword), visit),
        Name::Channel => unsigned(descriptor(view).map(|descriptor| descriptor.channel), visit),
        Name::Task => unsigned(descriptor(view).map(|descriptor| descriptor.task), visit),
        Name::Flags => unsigned(view.event().record().event_flags().map(|(flags, _)| flags), visit),
        Name::Activity => {
            let activity = view.event().record().activity();
            some_guid(activity.filter(|activity| *activity != Guid::ZERO), visit)
        }
        Name::StackState => visit(Value::Text(view.state().name())),
        Name::StackModule => modules(view, visit),
        Name::StackSymbol => symbols(view, false, visit),
        Name::StackSymbolAsPrinted => symbols(view, true, visit),
        Name::StackSummary => with_summary(view, |summary| visit(Value::Text(summary.user()))),
        Name::ContainsUnbacked => {
            with_summary(view, |summary| visit(Value::Text(summary.contains_unbacked().name())))
        }
        Name::FinalUserModule => {
            with_summary(view, |summary| text(summary.final_user_module(&view.modules()), visit))
        }
        Name::KernelSummary => with_summary(view, |summary| visit(Value::Text(summary.kernel()))),
        Name::FinalKernelModule => with_summary(view, |summary| {
            let modules = view.modules();
            text(summary.final_kernel_module().map(|module| modules.get(module).name()), visit)
        }),
        Name::Frame(FrameFact::Call) => calls(view, visit),
        Name::Frame(fact) => view.frames_in_full().try_for_each(|frame| frame_fact(&frame, *fact, visit)),
        Name::CallService => match (view.call(), view.service()) {
            (_, Some(service)) => visit(Value::Text(&service)),
            (Some(_), None) => visit(Value::Unknown),
            (None, None) => ControlFlow::Continue(()),
        },
        Name::CallCompletion => text(view.call().map(|call| call.end.name()), visit),
        Name::CallStatus => unsigned(completed().map(|(status, _)| status), visit),
        Name::CallDuration => unsigned(completed().map(|(_, nanoseconds)| nanoseconds), visit),
        Name::CreateRequested => text(view.create().map(|create| create.requested.name()), visit),
        Name::CreateResult => match view.create().map(|create| create.end) {
            Some(CreateEnd::Completed { result, .. }) => visit(Value::Text(result.name())),
            _ => ControlFlow::Continue(()),
        },
        Name::Fact(fact) => fact.visit(view, visit).unwrap_or(ControlFlow::Continue(())),
        Name::Payload(name) => match view.item(name) {
            Some((field, Item::Value(value))) => field_value(field, value, visit),
            Some((_, Item::Array(array))) => elements(array, visit),
            Some((_, Item::Struct(_))) | None => ControlFlow::Continue(()),
        },
    }
}

fn unsigned(number: Option<impl Into<u64>>, visit: &mut Visitor<'_>) -> ControlFlow<()> {
    number.map_or(ControlFlow::Continue(()), |number| visit(Value::Unsigned(number.into())))
}

fn text(text: Option<&str>, visit: &mut Visitor<'_>) -> ControlFlow<()> {
    text.map_or(ControlFlow::Continue(()), |text| visit(Value::Text(text)))
}

fn some_guid(id: Option<Guid>, visit: &mut Visitor<'_>) -> ControlFlow<()> {
    id.map_or(ControlFlow::Continue(()), |id| guid(id, visit))
}

fn descriptor(view: &EventView<'_>) -> Option<Descriptor> {
    view.event().record().descriptor()
}

fn modules(view: &EventView<'_>, visit: &mut Visitor<'_>) -> ControlFlow<()> {
    for frame in view.frames_in_full() {
        let label = (Label { frame: &frame, names: None }).module();
        if label.is_none() && frame.backing() != Backing::Unbacked {
            visit(Value::Unknown)?;
        }
        text(label.as_deref(), visit)?;
        text(label.as_deref().and_then(stem), visit)?;
        text(frame.module().map(|module| module.path()), visit)?;
    }
    ControlFlow::Continue(())
}

/// Visits a fact about a frame. Kernel frames have no region.
fn frame_fact(frame: &Frame, fact: FrameFact, visit: &mut Visitor<'_>) -> ControlFlow<()> {
    if fact == FrameFact::Backing {
        visit(Value::Text(frame.backing().name()))?;
        return unknown_if(frame.backing() == Backing::Unknown, visit);
    }
    if frame.mode == Mode::Kernel {
        return ControlFlow::Continue(());
    }
    let region = &frame.region;
    let number = match fact {
        FrameFact::RegionKind => {
            visit(Value::Text(region.kind.name()))?;
            return unknown_if(region.kind == RegionKind::Unknown, visit);
        }
        FrameFact::RegionProtection => match region.protection {
            Some(protection) => return visit(Value::Text(protection.letters())),
            None => None,
        },
        FrameFact::RegionBase => region.extent.map(|(base, _)| base.0),
        _ => region.extent.map(|(_, size)| size),
    };
    visit(number.map_or(Value::Unknown, Value::Unsigned))
}

fn unknown_if(is_unknown: bool, visit: &mut Visitor<'_>) -> ControlFlow<()> {
    if is_unknown { visit(Value::Unknown) } else { ControlFlow::Continue(()) }
}

/// Visits the call before each return address.
fn calls(view: &EventView<'_>, visit: &mut Visitor<'_>) -> ControlFlow<()> {
    view.frames_in_full().filter(|frame| frame.kind == AddressKind::Return).try_for_each(|frame| {
        let names = view.names(&frame);
        let site = names.as_deref().and_then(|names| names.call_site.as_deref());
        let call = site.and_then(|site| site.instruction.as_deref());
        visit(call.map_or(Value::Unknown, Value::Text))
    })
}

/// All names that any output shows for a frame, and their common short forms.
fn symbols(view: &EventView<'_>, as_printed: bool, visit: &mut Visitor<'_>) -> ControlFlow<()> {
    for frame in view.frames_in_full() {
        let names = view.names(&frame);
        let label = Label { frame: &frame, names: names.as_deref() };
        let (module, shown_name) = (label.module(), label.name());
        if let Some((module, name)) = module.as_deref().zip(shown_name.as_ref()) {
            function(module, &name.text, visit)?;
            if as_printed {
                shown(format_args!("{module}!~{}", name.text), visit)?;
                shown(format_args!("{module}!{}+{:#x}", name.text, name.offset), visit)?;
            }
        }
        for name in names.as_deref().into_iter().flat_map(ResolvedFrame::all_names) {
            if shown_name.as_ref().is_none_or(|shown| *shown.text != *name) {
                function(module.as_deref().unwrap_or_default(), name, visit)?;
            }
        }
        if as_printed {
            // With the origin of the name, or without a name if functions are not named.
            shown(label, visit)?;
            shown(frame, visit)?;
        }
        if shown_name.is_none() && frame.backing() != Backing::Unbacked {
            unnamed_function(module.as_deref(), visit)?;
        }
    }
    ControlFlow::Continue(())
}

/// Visits what is known of a function without a name, in the forms of [`function`].
fn unnamed_function(module: Option<&str>, visit: &mut Visitor<'_>) -> ControlFlow<()> {
    let Some(module) = module else { return visit(Value::Unknown) };
    for module in ["", module].into_iter().chain(stem(module)) {
        visit(Value::UnnamedFunction { module })?;
    }
    ControlFlow::Continue(())
}

/// Visits the function alone, and after its module with and without extension.
fn function(module: &str, name: &str, visit: &mut Visitor<'_>) -> ControlFlow<()> {
    visit(Value::Text(name))?;
    shown(format_args!("{module}!{name}"), visit)?;
    stem(module).map_or(ControlFlow::Continue(()), |module| shown(format_args!("{module}!{name}"), visit))
}

/// Visits the summary of events that have a stack.
fn with_summary(view: &EventView<'_>, visit: impl FnOnce(&Summary) -> ControlFlow<()>) -> ControlFlow<()> {
    if view.stack().is_none() {
        return ControlFlow::Continue(());
    }
    let mut summary = Summary::default();
    view.summarize(&mut summary);
    visit(&summary)
}

/// Visits each element that is a single value. Visits characters together, as the text up to the
/// first zero.
fn elements(array: Array<'_>, visit: &mut Visitor<'_>) -> ControlFlow<()> {
    match array.field().in_type {
        InType::Utf16Char => {
            let (units, _) = array.bytes().as_chunks::<2>();
            let length = units.iter().position(|unit| *unit == [0, 0]).unwrap_or(units.len());
            visit(Value::Utf16(units[..length].as_flattened()))
        }
        InType::AnsiChar => ansi(array.bytes().split(|byte| *byte == 0).next().unwrap_or_default(), visit),
        _ => array.iter().try_for_each(|element| match element {
            Item::Value(value) => field_value(array.field(), value, visit),
            Item::Array(_) | Item::Struct(_) => ControlFlow::Continue(()),
        }),
    }
}

/// Visits numbers as numbers and, if the field is displayed differently, its displayed text too.
fn field_value(field: &Field, value: FieldValue<'_>, visit: &mut Visitor<'_>) -> ControlFlow<()> {
    match value {
        FieldValue::Null => return ControlFlow::Continue(()),
        FieldValue::Bool(truth) => return visit(Value::Bool(truth)),
        FieldValue::Float(number) => return visit(Value::Float(number)),
        FieldValue::Utf16(bytes) => return visit(Value::Utf16(bytes)),
        FieldValue::Ansi(bytes) => return ansi(bytes, visit),
        FieldValue::Binary(bytes) if is_text(field.out_type) => return ansi(bytes, visit),
        FieldValue::Guid(id) => return guid(id, visit),
        FieldValue::Unsigned(number) if field.out_type == OutType::Port => {
            return visit(Value::Unsigned((number as u16).swap_bytes().into()));
        }
        FieldValue::Unsigned(number) => {
            visit(Value::Unsigned(number))?;
            if field.map.is_none() && is_plain(field.out_type) {
                return ControlFlow::Continue(());
            }
        }
        FieldValue::Hex(number) | FieldValue::Pointer(number) => visit(Value::Unsigned(number))?,
        FieldValue::Signed(number) => {
            visit(Value::Signed(number))?;
            if field.map.is_none() {
                return ControlFlow::Continue(());
            }
        }
        FieldValue::RawTime(time) => return visit(Value::Signed(time.0)),
        FieldValue::Binary(_) | FieldValue::Sid(_) | FieldValue::FileTime(_) | FieldValue::SystemTime(_) => {}
    }
    shown(field.render(value), visit)
}

/// Visits 8-bit text as UTF-8, or as Latin-1 if it is not valid UTF-8.
fn ansi(bytes: &[u8], visit: &mut Visitor<'_>) -> ControlFlow<()> {
    match str::from_utf8(bytes) {
        Ok(text) => visit(Value::Text(text)),
        Err(_) => visit(Value::Latin1(bytes)),
    }
}

fn is_text(out_type: OutType) -> bool {
    matches!(out_type, OutType::String | OutType::Utf8 | OutType::Xml | OutType::Json)
}

/// Whether numbers are displayed as plain numbers.
fn is_plain(out_type: OutType) -> bool {
    matches!(
        out_type,
        OutType::Default | OutType::Pid | OutType::Tid | OutType::Unsigned | OutType::Win32Error
    )
}
