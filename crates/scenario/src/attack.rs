//! The attack: a program that opens another process with a system call of its own, opens it again by jumps into
//! `ntdll.dll`, makes itself start with the session from private memory, and starts a thread in private memory of the other
//! process. And the loss of a buffer.

use std::io::Write;

use stackhound_etl::write::WriteError;

use crate::machine::{ProcessIndex, Role};
use crate::output::PROCESSORS;
use crate::provider::ProviderEvent;
use crate::resources::RUN_KEY;
use crate::simulation::Simulation;
use crate::site;
use crate::thread::{Action, Caller, Occurrence, Start, ThreadIndex};

/// Percentages of the records after which a process is started that soon ends, and the attacker.
const TASK_AT: u64 = 8;
const ATTACK_AT: u64 = 15;
/// Percentage of the records after which a buffer is lost, at the earliest.
const LOSS_AT: u64 = 60;
/// Bytes of private memory for code.
const CODE_SIZE: u64 = 0x2_1000;

/// How far the attack has come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Plot {
    /// The thread that starts the attacker, and its process.
    pub launcher: Option<ThreadIndex>,
    victim: ProcessIndex,
    started: Option<Role>,
    has_ended: bool,
    was_lost: bool,
}

impl Plot {
    /// The thread that will start the attacker, in the process that will be attacked.
    pub fn new(launcher: ThreadIndex, victim: ProcessIndex) -> Plot {
        Plot { launcher: Some(launcher), victim, ..Plot::default() }
    }

    pub fn end(&mut self) {
        self.has_ended = true;
    }
}

impl<W: Write> Simulation<'_, W> {
    /// Whether everything happened that is to happen.
    pub fn is_over(&self) -> bool {
        self.plot.has_ended && self.out.shows_loss()
    }

    /// Starts the attack, and the loss of a buffer, when the recording will be `records` long and it is time.
    pub fn advance_plot(&mut self, records: u64) -> Result<(), WriteError> {
        let percent = self.out.kept() * 100 / records;
        let next = match self.plot.started {
            None if percent >= TASK_AT => Some(Role::Task),
            Some(Role::Task) if percent >= ATTACK_AT => Some(Role::Updater),
            _ => None,
        };
        if let (Some(role), Some(launcher)) = (next, self.plot.launcher) {
            self.plot.started = next;
            let call = &site::NT_CREATE_USER_PROCESS;
            self.threads[launcher].script.extend([Action::Enter(call), Action::Spawn(role), Action::Leave]);
        }
        if self.plot.has_ended && !self.plot.was_lost && percent >= LOSS_AT {
            self.plot.was_lost = true;
            let processor = self.random.below(PROCESSORS.into()) as u16;
            self.out.start_losing(processor)?;
        }
        Ok(())
    }

    /// What the attacker does once it has loaded its images.
    pub fn plan_attack(&mut self, thread: ThreadIndex) {
        let process = self.threads[thread].process;
        let victim = self.plot.victim;
        let own = self.machine.processes[process].allocate(CODE_SIZE);
        let injected = self.machine.processes[victim].allocate(CODE_SIZE);
        let target = self.machine.processes[victim].pid();
        self.stacks.uncached = Some(self.machine.processes[process].pid());
        let peace = [Action::CallAs(Caller::Stub), Action::Compute(2000)];
        let script = &mut self.threads[thread].script;
        script.extend([
            Action::Enter(&site::NT_ALLOCATE_VIRTUAL_MEMORY),
            Action::AllocateCode(process, own),
            Action::Leave,
            Action::Enter(&site::NT_OPEN_KEY_EX),
            Action::Log(Occurrence::RegistryOpen(RUN_KEY)),
            Action::Log(Occurrence::KeyControlBlock(RUN_KEY)),
            Action::Leave,
            Action::Compute(2000),
        ]);
        script.extend([
            Action::CallAs(Caller::Direct),
            Action::Enter(&site::NT_OPEN_PROCESS),
            Action::Log(Occurrence::Provider(ProviderEvent::OpenProcess(target))),
            Action::Leave,
            Action::Enter(&site::NT_ALLOCATE_VIRTUAL_MEMORY),
            Action::AllocateCode(victim, injected),
            Action::Leave,
        ]);
        script.extend(peace);
        for caller in [Caller::OwnStub, Caller::Stray] {
            script.extend([
                Action::CallAs(caller),
                Action::Enter(&site::NT_OPEN_PROCESS),
                Action::Log(Occurrence::Provider(ProviderEvent::OpenProcess(target))),
                Action::Leave,
            ]);
            script.extend(peace);
        }
        script.extend([
            Action::CallAs(Caller::Indirect(own)),
            Action::Enter(&site::NT_SET_VALUE_KEY),
            Action::Log(Occurrence::RegistrySetValue(RUN_KEY)),
            Action::Leave,
        ]);
        script.extend(peace);
        script.extend([
            Action::Enter(&site::NT_CREATE_THREAD_EX),
            Action::StartThread(victim, Start::Private(injected)),
            Action::Leave,
        ]);
    }
}
