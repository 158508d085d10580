//! A naive model of steps, which reads every context and walks over all transitions one by one.

use stackhound_calltree::{
    ContextId, Cpu, EndType, Frame, FrameId, StackId, StackInfo, StackKind, StartType, Trace, TransitionId,
};

/// A trace, read context by context.
pub struct Oracle<'t> {
    trace: &'t Trace,
    stacks: Vec<StackInfo>,
    /// The processor of each transition.
    cpus: Vec<usize>,
    /// For every processor, the active stack at every context.
    active: Vec<Vec<Option<usize>>>,
    /// For every transition, the functions that it starts.
    started: Vec<Vec<Frame<'t>>>,
}

/// Compares all steps of a trace with the model.
pub fn check(trace: &Trace) {
    let oracle = Oracle::new(trace);
    let at = |number: usize| trace.transition(TransitionId(number as u64)).unwrap();
    for number in 0..oracle.cpus.len() {
        let from = at(number);
        let found = [from.step_over(), from.step_over_backward(), from.step_out(), from.step_out_backward()];
        let found = found.map(|step| step.map(|step| step.id().0 as usize));
        assert_eq!(found, oracle.steps(number), "over, back, out and back out of #{number}");
        // Backward of forward.
        if let (Some(stack), Some(next)) = (oracle.stack(number), found[0])
            && !oracle.is_of_processor(stack)
        {
            let flow = oracle.flow(number, false);
            let before = (0..next).rev().find(|number| flow[*number]).unwrap();
            let is_exact = match at(before).ends() {
                Some(frame) => before != number && frame.function_start() == Some(from),
                None => before == number,
            };
            let back = at(next).step_over_backward();
            assert!(!is_exact || back == Some(from), "#{number}, over to #{next} and back: {back:?}");
        }
    }
}

impl<'t> Oracle<'t> {
    fn new(trace: &'t Trace) -> Self {
        let number = |id: StackId| id.0 as usize;
        let count = trace.transition_count();
        let contexts = || (0..=count).map(|id| trace.context(ContextId(id)).unwrap());
        let on = |cpu| contexts().map(|at| Some(number(at.on(cpu).stack()?.id()))).collect();
        let mut started = vec![Vec::new(); count as usize];
        for frame in (0..trace.frame_count()).map(|id| trace.frame(FrameId(id)).unwrap()) {
            if let Some(start) = frame.function_start() {
                started[start.id().0 as usize].push(frame);
            }
        }
        let stack = |id| trace.stack(StackId(id), ContextId(0)).unwrap().info();
        Self {
            trace,
            stacks: (0..trace.stack_count()).map(stack).collect(),
            cpus: contexts().take(count as usize).map(|at| usize::from(at.cpu().0)).collect(),
            active: (0..trace.cpu_count().max(2)).map(|cpu| on(Cpu(cpu as u16))).collect(),
            started,
        }
    }

    /// The stack before a transition.
    fn stack(&self, number: usize) -> Option<usize> {
        self.active.get(self.cpus[number])?[number]
    }

    fn is_of_processor(&self, stack: usize) -> bool {
        matches!(self.stacks[stack].kind, StackKind::Interrupt | StackKind::Deferred)
    }

    fn is_same_thread(&self, one: usize, other: usize) -> bool {
        let thread = |stack: usize| {
            let info = &self.stacks[stack];
            Some((info.process, info.thread?, info.cpu)).filter(|_| !self.is_of_processor(stack))
        };
        one == other || thread(one).is_some() && thread(one) == thread(other)
    }

    /// The frames of a stack at a context, innermost first.
    fn frames(&self, stack: usize, at: usize) -> Vec<Frame<'t>> {
        self.trace.stack(StackId(stack as u32), ContextId(at as u64)).unwrap().frames().collect()
    }

    /// For every transition, whether it belongs to the control flow of another one, or to the part
    /// below the current routine of a processor.
    fn flow(&self, number: usize, is_below: bool) -> Vec<bool> {
        let mut stack = self.stack(number);
        let (mut at, mut inner) = (number, number);
        let mut is_in = vec![None; self.cpus.len()];
        while let Some(routine) = stack.filter(|stack| self.is_of_processor(*stack)) {
            let frames = self.frames(routine, at);
            let (first, last) = range(frames.last().expect("a frame on a processor's stack"));
            // Otherwise the routine was not interrupted, but had ended.
            if last >= inner {
                let end = if is_below && at == number { first } else { last + 1 };
                for (context, is_in) in is_in.iter_mut().enumerate().take(end).skip(first) {
                    is_in.get_or_insert_with(|| self.stack(context) == Some(routine));
                }
                inner = first;
            }
            // Walk back to the stack that was active before.
            let on = |at: usize| self.active.iter().find(|active| active[at] == Some(routine));
            let active = (0..=first).rev().find_map(|at| Some((at, on(at)?)));
            let before = active.and_then(|(from, active)| {
                (0..from).rev().find(|at| active[*at] != Some(routine)).map(|at| (at, active[at]))
            });
            (at, stack) = before.unwrap_or((0, None));
        }
        let is_other = |at| match stack {
            Some(stack) => self.stack(at).is_some_and(|active| self.is_same_thread(active, stack)),
            None => self.cpus[at] == self.cpus[number],
        };
        is_in.into_iter().enumerate().map(|(at, is_in)| is_in.unwrap_or_else(|| is_other(at))).collect()
    }

    /// The first transition of a flow from `from` on, outside of functions that start from there
    /// on.
    fn next(&self, flow: &[bool], mut from: usize) -> Option<usize> {
        loop {
            let found = (from..flow.len()).find(|at| flow[*at])?;
            let frames = self.stack(found).map_or(Vec::new(), |stack| self.frames(stack, found));
            let is_inside = |frame: &&Frame<'_>| range(frame).0 >= from && is_function(frame);
            match frames.iter().rev().find(is_inside) {
                Some(frame) => from = end(frame)?,
                None => return Some(found),
            }
        }
    }

    /// The four steps from a transition.
    fn steps(&self, number: usize) -> [Option<usize>; 4] {
        let flow = self.flow(number, false);
        let stack = self.stack(number);
        let previous = |end: usize| (0..end).rev().find(|at| flow[*at]);
        let is_own = |frame: &&Frame<'_>| {
            let other = frame.stack().id().0 as usize;
            stack.is_some_and(|stack| self.is_same_thread(other, stack))
        };
        let started = self.started[number].iter().filter(is_own).min_by_key(|frame| frame.depth());
        let over = match started {
            Some(frame) => end(frame).and_then(|end| self.next(&flow, end)),
            None => self.next(&flow, number + 1),
        };
        let back = previous(number).and_then(|before| {
            let ended = self.trace.transition(TransitionId(before as u64)).unwrap().ends();
            ended.map_or(Some(before), |frame| previous(range(&frame).0))
        });
        let [mut out, mut back_out] = [None; 2];
        let frames = stack.map_or(Vec::new(), |stack| self.frames(stack, number));
        if let (Some(stack), Some(frame)) = (stack, frames.first()) {
            let is_kernel = self.stacks[stack].kind == StackKind::Kernel;
            let is_root = frames.len() == 1 && (is_kernel || self.is_of_processor(stack));
            let below = self.flow(number, true);
            let is_left = |at: usize| below[at] && !(is_kernel && self.stack(at) == Some(stack));
            let below: Vec<bool> = (0..below.len()).map(is_left).collect();
            let is_recorded = !is_kernel || is_function(frame);
            out = match end(frame) {
                Some(end) if !is_root || is_recorded => self.next(&flow, end),
                _ if is_root => self.next(&below, number + 1),
                _ => None,
            };
            if is_root && !is_recorded {
                back_out = (0..number).rev().find(|at| below[*at]);
            } else if is_root
                || frame.start_type() == StartType::Interrupt
                || frame.function_start().is_some()
            {
                back_out = previous(range(frame).0);
            }
        }
        [over, back, out, back_out]
    }
}

fn range(frame: &Frame<'_>) -> (usize, usize) {
    (frame.first_context().id().0 as usize, frame.last_context().id().0 as usize)
}

/// The context after the last one, if the frame ends.
fn end(frame: &Frame<'_>) -> Option<usize> {
    (frame.end_type() != EndType::TraceEnd).then(|| range(frame).1 + 1)
}

fn is_function(frame: &Frame<'_>) -> bool {
    [StartType::Call, StartType::Interrupt].contains(&frame.start_type())
}
