//! The attack, and the loss of a buffer.
//!
//! The attacker opens another process by a direct system call, then by jumps into `ntdll.dll`. It
//! registers itself to start with the user's session, by an indirect system call from private
//! memory, and starts a thread in private memory of the other process.

use std::io::Write;

use stackhound_etl::write::WriteError;

use crate::machine::{ProcessIndex, Role};
use crate::output::PROCESSORS;
use crate::provider::ProviderEvent;
use crate::resources::RUN_KEY;
use crate::simulation::Simulation;
use crate::site;
use crate::thread::{Action, Caller, Occurrence, Start, ThreadIndex};

/// Percentage of the records after which a short-lived process is started.
const TASK_AT: u64 = 8;
/// Percentage of the records after which the attacker is started.
const ATTACK_AT: u64 = 15;
/// Minimum percentage of the records after which a buffer is lost.
const LOSS_AT: u64 = 60;
/// Size of the private memory for code, in bytes.
const CODE_SIZE: u64 = 0x2_1000;

/// Progress of the attack.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AttackProgress {
    /// The thread that starts the attacker.
    pub launcher: Option<ThreadIndex>,
    victim: ProcessIndex,
    started: Option<Role>,
    has_ended: bool,
    was_lost: bool,
}

impl AttackProgress {
    /// An attack that the thread `launcher` will start. `victim` is its process, which is the
    /// target.
    pub fn new(launcher: ThreadIndex, victim: ProcessIndex) -> AttackProgress {
        AttackProgress { launcher: Some(launcher), victim, ..AttackProgress::default() }
    }

    /// The target.
    pub fn victim(&self) -> ProcessIndex {
        self.victim
    }

    pub fn end(&mut self) {
        self.has_ended = true;
    }
}

impl<W: Write> Simulation<'_, W> {
    /// Whether the attack has ended and the lost buffer, if there is one, is visible in the file, or
    /// the problem has happened.
    pub fn is_over(&self) -> bool {
        if self.problem.is_some() {
            return self.is_problem_over();
        }
        self.progress.has_ended && (self.version.is_some() || self.out.shows_loss())
    }

    /// Starts the attack and the loss of a buffer at their percentages of `records`, the final
    /// number of records.
    pub fn advance_attack(&mut self, records: u64) -> Result<(), WriteError> {
        if self.problem.is_some() {
            return Ok(());
        }
        let percent = self.out.kept() * 100 / records;
        let next = match self.progress.started {
            None if percent >= TASK_AT => Some(Role::Task),
            Some(Role::Task) if percent >= ATTACK_AT => Some(Role::Updater),
            _ => None,
        };
        if let (Some(role), Some(launcher)) = (next, self.progress.launcher) {
            self.progress.started = next;
            let call = &site::NT_CREATE_USER_PROCESS;
            self.threads[launcher].script.extend([Action::Enter(call), Action::Spawn(role), Action::Leave]);
        }
        let is_pending = self.version.is_none() && !self.progress.was_lost;
        if self.progress.has_ended && is_pending && percent >= LOSS_AT {
            self.progress.was_lost = true;
            let processor = self.random.below(PROCESSORS.into()) as u16;
            self.out.start_losing(processor)?;
        }
        Ok(())
    }

    /// Plans the actions of the attacker after it has loaded its images.
    pub fn plan_attack(&mut self, thread: ThreadIndex) {
        let process = self.threads[thread].process;
        let victim = self.progress.victim;
        let own = self.machine.processes[process].allocate(CODE_SIZE);
        let injected = self.machine.processes[victim].allocate(CODE_SIZE);
        let target = self.machine.processes[victim].pid();
        self.stacks.uncached = Some(self.machine.processes[process].pid());
        let pause = [Action::CallAs(Caller::Stub), Action::Compute(2000)];
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
        script.extend(pause);
        for caller in [Caller::OwnStub, Caller::Stray] {
            script.extend([
                Action::CallAs(caller),
                Action::Enter(&site::NT_OPEN_PROCESS),
                Action::Log(Occurrence::Provider(ProviderEvent::OpenProcess(target))),
                Action::Leave,
            ]);
            script.extend(pause);
        }
        script.extend([
            Action::CallAs(Caller::Indirect(own)),
            Action::Enter(&site::NT_SET_VALUE_KEY),
            Action::Log(Occurrence::RegistrySetValue(RUN_KEY)),
            Action::Leave,
        ]);
        script.extend(pause);
        script.extend([
            Action::Enter(&site::NT_CREATE_THREAD_EX),
            Action::StartThread(victim, Start::Private(injected)),
            Action::Leave,
        ]);
    }
}
