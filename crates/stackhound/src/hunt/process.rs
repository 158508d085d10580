//! What is known of the processes whose stacks are judged.

use stackhound_detect::{Judge, Process};
use stackhound_etl::PointerSize;
use stackhound_system::{Completeness, ProcessId, Stretch, System};
use stackhound_trace::TraceTime;

use super::modules::ModuleNumbers;
use super::numbers::{Numbered, Numbers};
use crate::{slots, wow64};

/// Of processes whose modules change more often than this, nothing that rests on all modules is known: each change would
/// cost a look at all.
pub(super) const CHANGES_MAX: usize = 4096;

/// What is known of a process, without its thread.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Facts {
    /// As the system names it.
    name: Box<str>,
    /// Its path, if a module tells.
    image: Box<str>,
    is_wow64: Option<bool>,
    has_runtime: Option<bool>,
    has_win32u: Option<bool>,
    /// Whether an `ntdll.dll` is mapped, as far as is known.
    has_ntdll: bool,
}

impl Facts {
    /// In the form of the detections.
    pub fn process(&self) -> Process<'_> {
        Process {
            image: &self.image,
            is_wow64: self.is_wow64,
            has_runtime: self.has_runtime,
            has_win32u: self.has_win32u,
            thread_start: None,
        }
    }

    /// Whether all of its modules can be known by now. Stacks of a process that is being made lead through images whose
    /// loads are told later, and processes of other kinds have none that are told.
    pub fn is_built(&self) -> bool {
        self.has_ntdll
    }

    /// Whether it runs 32-bit code on 64-bit Windows, as far as is known.
    pub fn is_wow64(&self) -> bool {
        self.is_wow64 == Some(true)
    }
}

#[derive(Debug)]
struct Known {
    id: ProcessId,
    /// What the facts rest on.
    stretch: Stretch,
    is_complete: bool,
    flags: Option<u32>,
    facts: Facts,
    number: u32,
}

/// Processes, by the system's index of each. One that was forgotten has left its index to another one.
#[derive(Debug, Default)]
pub(super) struct Processes {
    known: Vec<Option<Known>>,
    /// Processes of which the same is known have the same number.
    numbered: Numbered<Facts>,
    nobody: Facts,
}

impl Processes {
    /// A number that stands for all that is known of a process at a time: two states of knowledge never have the same.
    /// 0 is the number of unknown processes.
    pub fn number(
        &mut self,
        system: &System,
        (judge, modules, numbers): (&mut Judge, &mut ModuleNumbers, &mut Numbers),
        session: PointerSize,
        process: Option<ProcessId>,
        time: TraceTime,
    ) -> u32 {
        let Some(id) = process else { return 0 };
        let stretch = system.module_stretch(id, time);
        let is_complete = system.map_complete_in(id) == Completeness::Complete;
        let (flags, image) = (system.process(id).flags(), system.process(id).image_name());
        let known = slots::at(&mut self.known, id.index());
        if let Some(known) = known
            && known.id == id
            && known.stretch == stretch
            && (known.is_complete, known.flags) == (is_complete, flags)
            && *known.facts.name == *image
        {
            return known.number;
        }
        let facts = look_up(system, (judge, modules), session, (id, time), is_complete);
        let number = self.numbered.of(facts.clone(), numbers);
        *known = Some(Known { id, stretch, is_complete, flags, facts, number });
        number
    }

    /// Forgets all numbers, which begin again.
    pub fn forget(&mut self) {
        *self = Processes::default();
    }

    /// What is known of a process whose number was asked for just before.
    pub fn facts(&self, process: Option<ProcessId>) -> &Facts {
        let known = process.and_then(|id| self.known.get(id.index())?.as_ref());
        known.map_or(&self.nobody, |known| &known.facts)
    }
}

fn look_up(
    system: &System,
    (judge, numbers): (&mut Judge, &mut ModuleNumbers),
    session: PointerSize,
    (id, time): (ProcessId, TraceTime),
    is_complete: bool,
) -> Facts {
    let process = system.process(id);
    let name = process.image_name();
    let mut image = name.into();
    let (mut has_runtime, mut has_win32u, mut has_layer) = (false, false, false);
    let mut has_ntdll = process.pid().is_kernel_only();
    // Its last events come behind its end.
    let modules = system.modules_in(id, time.min(process.span().to), CHANGES_MAX);
    let all = modules.is_some() && is_complete;
    has_ntdll |= modules.is_none();
    for module in modules.into_iter().flatten() {
        let known = numbers.of(system, judge, module.id());
        has_runtime |= known.is_runtime;
        has_win32u |= known.is_win32u;
        has_ntdll |= known.is_ntdll;
        has_layer |= known.is_wide && module.file_name().eq_ignore_ascii_case(wow64::LAYER);
        if !name.is_empty() && module.file_name().eq_ignore_ascii_case(name) {
            image = judge.modules().get(known.index).path.clone();
        }
    }
    let told = |is: bool| (is || all).then_some(is);
    let is_wow64 = match session {
        PointerSize::Four => Some(false),
        PointerSize::Eight => wow64::is_reported(process).or_else(|| told(has_layer)),
    };
    Facts {
        name: name.into(),
        image,
        is_wow64,
        has_runtime: told(has_runtime),
        has_win32u: told(has_win32u),
        has_ntdll,
    }
}
