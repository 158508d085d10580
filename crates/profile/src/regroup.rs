//! Grouped stacks: what patterns make of the stacks of a profile.
//!
//! The patterns see each frame once, whatever its number of samples. The steps are those of PerfView:
//!
//! 1. Each frame gets the name of its group. Frames without the name of a function are `module!?`.
//! 2. A frame of an entry group whose caller is in the same group becomes that caller: only the entry
//!    point remains.
//! 3. A stack with a frame whose name is excluded, or without a frame for each included pattern, is
//!    left out. Folded frames count here, those that became their callers do not.
//! 4. Folded frames disappear, and count for their callers. If no frame remains, the stack is
//!    `[folded]`.
//! 5. A frame whose caller has the same name disappears, so that direct recursion does, too.
//!
//! The *caller* is the next outer frame that did not disappear. Names of groups are tested as they
//! are shown, other names in full: with the path of the module.

use rustc_hash::{FxHashMap, FxHashSet};
use stackhound_types::plain::make_plain;

use crate::model::{Frame, FrameId, Origin, StackId, ThreadId};
use crate::patterns::{Grouped, Patterns, without_volume};
use crate::profile::{Node, Profile, name_unnamed};
use crate::totals::{Grouping, Groups};

/// The grouped stacks of a profile.
#[derive(Clone, Debug)]
pub struct Regrouped {
    frames: Vec<Frame>,
    stacks: Vec<Node>,
    of_stack: Vec<Option<StackId>>,
    /// The directories of the programs whose code was kept as own code, in order.
    pub own_directories: Vec<String>,
}

impl Regrouped {
    /// What became of a stack; `None` if it was left out.
    pub fn of(&self, stack: StackId) -> Option<StackId> {
        self.of_stack[stack.index()]
    }
}

/// What became of a frame.
#[derive(Clone, Copy, Debug)]
struct Shown {
    frame: FrameId,
    /// The number of its name.
    name: u32,
    /// The number of the name of its entry group.
    entry: Option<u32>,
    is_excluded: bool,
    is_folded: bool,
    /// The patterns that include it, as bits.
    included: u64,
}

/// What became of a stack so far.
#[derive(Clone, Copy, Debug, Default)]
struct PathState {
    /// The innermost frame that remains: its stack, its name and its entry group.
    kept: Option<(StackId, u32, Option<u32>)>,
    is_excluded: bool,
    included: u64,
}

/// Numbers of names.
#[derive(Debug, Default)]
struct Names(FxHashMap<String, u32>);

impl Names {
    fn number(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.0.get(name) {
            return number;
        }
        let number = self.0.len() as u32;
        self.0.insert(name.to_owned(), number);
        number
    }
}

impl Patterns {
    /// Applies the patterns to all stacks. `observed` are the threads whose programs are own code, and
    /// `grouping` says how frames without the name of a function are named.
    ///
    /// Costs one search for each frame and pattern, and one look-up for each stack.
    pub fn regroup(
        &self,
        profile: &Profile,
        observed: impl IntoIterator<Item = ThreadId>,
        grouping: Grouping,
    ) -> Regrouped {
        let mut own = OwnCode::default();
        if self.keeps_own_code() {
            own = OwnCode::new(self, profile, observed);
        }
        let groups = Groups::new(profile, grouping);
        let mut frames = profile.frames().to_vec();
        // They become frames of the stacks.
        frames.iter_mut().for_each(|frame| frame.inlines = Box::default());
        if grouping != Grouping::Offset {
            name_unnamed(&mut frames, &groups);
        }
        let (mut names, mut by_name) = (Names::default(), FxHashMap::default());
        let mut shown = Vec::with_capacity(frames.len());
        for index in 0..profile.frames().len() {
            let id = FrameId(index as u32);
            let frame = profile.frame(id);
            let label = &groups.names()[groups.of(id)];
            let full = full_name(profile, frame, label);
            let (group, entry) = match self.grouped(&full) {
                Grouped::Unchanged if self.keeps_own_code() && !own.contains(frame, &full) => {
                    (Some(format!("{OTHER} <<{label}>>")), Some(OTHER.to_owned()))
                }
                Grouped::Unchanged | Grouped::Left => (None, None),
                Grouped::Renamed(name) => (Some(name), None),
                Grouped::In(name) => (Some(format!("{name} <<{label}>>")), Some(name)),
            };
            let tested = group.as_deref().unwrap_or(&full);
            shown.push(Shown {
                is_excluded: self.excludes(tested),
                is_folded: self.folds(tested),
                included: self.includes(tested),
                name: names.number(group.as_deref().unwrap_or(label)),
                entry: entry.map(|entry| names.number(&entry)),
                frame: match group {
                    None => id,
                    Some(name) => *by_name.entry(name).or_insert_with_key(|name| {
                        frames.push(group_frame(name, frame));
                        FrameId((frames.len() - 1) as u32)
                    }),
                },
            });
        }
        let (stacks, of_stack) = self.stacks(profile, &shown, &mut frames);
        Regrouped { frames, stacks, of_stack, own_directories: own.shown }
    }

    fn stacks(
        &self,
        profile: &Profile,
        shown: &[Shown],
        frames: &mut Vec<Frame>,
    ) -> (Vec<Node>, Vec<Option<StackId>>) {
        let mut stacks: Vec<Node> = Vec::new();
        let mut known: FxHashMap<Node, StackId> = FxHashMap::default();
        let mut stack = |caller: Option<StackId>, frame: FrameId| {
            let node = Node { caller, frame };
            *known.entry(node).or_insert_with(|| {
                stacks.push(node);
                StackId((stacks.len() - 1) as u32)
            })
        };
        // Callers come first.
        let mut states: Vec<PathState> = Vec::with_capacity(profile.stacks().len());
        let mut nothing_left = None;
        let mut of_stack = Vec::with_capacity(profile.stacks().len());
        for node in profile.stacks() {
            let mut now = node.caller.map_or_else(PathState::default, |caller| states[caller.index()]);
            let inlines = profile.frame(node.frame).inlines.iter().rev();
            for frame in std::iter::once(&node.frame).chain(inlines).map(|frame| &shown[frame.index()]) {
                let is_inside =
                    frame.entry.is_some() && now.kept.is_some_and(|(.., entry)| entry == frame.entry);
                if is_inside {
                    continue;
                }
                now.is_excluded |= frame.is_excluded;
                now.included |= frame.included;
                if !frame.is_folded && now.kept.is_none_or(|(_, name, _)| name != frame.name) {
                    let caller = now.kept.map(|(caller, ..)| caller);
                    now.kept = Some((stack(caller, frame.frame), frame.name, frame.entry));
                }
            }
            states.push(now);
            let is_selected = !now.is_excluded && now.included == self.needed();
            of_stack.push(is_selected.then(|| match now.kept {
                Some((stack, ..)) => stack,
                None => *nothing_left.get_or_insert_with(|| {
                    frames.push(Frame::remark("folded"));
                    stack(None, FrameId((frames.len() - 1) as u32))
                }),
            }));
        }
        (stacks, of_stack)
    }
}

impl Profile {
    /// Replaces the stacks of the profile, of which `regrouped` was made. Samples whose stacks were left
    /// out are removed; context switches and markers only lose these stacks. Returns the weight of the
    /// removed samples.
    pub fn replace_stacks(&mut self, regrouped: Regrouped) -> u64 {
        let before = self.weight();
        let Regrouped { frames, stacks, of_stack, .. } = regrouped;
        (self.frames, self.stacks) = (frames, stacks);
        let of = |stack: StackId| of_stack[stack.index()];
        self.samples.replace_stacks(of);
        let markers = self.markers.iter_mut().map(|record| &mut record.marker.stack);
        let switches = self.switches.iter_mut().map(|switch| &mut switch.stack);
        markers.chain(switches).for_each(|stack| *stack = stack.and_then(of));
        before - self.weight()
    }
}

/// The group of code that is not own code.
const OTHER: &str = "other code";

/// Programs that run the code of others. Their own directories say nothing about it.
const HOSTS: [&str; 12] = [
    "dotnet.exe",
    "iisexpress.exe",
    "java.exe",
    "javaw.exe",
    "node.exe",
    "powershell.exe",
    "pwsh.exe",
    "python.exe",
    "pythonw.exe",
    "vstest.console.exe",
    "testhost.exe",
    "w3wp.exe",
];

/// Which code belongs to the observed programs: modules in their directories, except the directories of
/// Windows and of hosts, and methods compiled at run time, except those of .NET itself.
#[derive(Debug, Default)]
struct OwnCode {
    /// By module.
    is_own: Vec<bool>,
    shown: Vec<String>,
}

impl OwnCode {
    fn new(patterns: &Patterns, profile: &Profile, observed: impl IntoIterator<Item = ThreadId>) -> OwnCode {
        let processes: FxHashSet<_> =
            observed.into_iter().map(|thread| profile.threads()[thread.index()].process).collect();
        let programs = processes.into_iter().map(|process| profile.process(process).path.as_str());
        let mut shown: Vec<String> = programs.filter_map(directory).map(str::to_owned).collect();
        shown.sort_by_cached_key(|directory| (directory.to_ascii_lowercase(), directory.clone()));
        shown.dedup_by_key(|directory| directory.to_ascii_lowercase());
        let known: FxHashSet<String> = shown.iter().map(|directory| directory.to_ascii_lowercase()).collect();
        let is_own = profile.modules().iter().map(|module| {
            let path = module.path.to_ascii_lowercase();
            let parents = path.match_indices('\\').map(|(at, _)| &path[..=at]);
            patterns.is_listed(&path) || parents.into_iter().any(|parent| known.contains(parent))
        });
        OwnCode { is_own: is_own.collect(), shown }
    }

    /// Remarks and addresses in no module are neither own code nor other code.
    fn contains(&self, frame: &Frame, full_name: &str) -> bool {
        const LIBRARIES: [&str; 3] = ["system.", "microsoft.", "internal."];
        match (frame.location, full_name.split_once('!')) {
            (Some(location), _) => self.is_own[location.module.index()],
            (None, Some((_, method))) if frame.origin == Origin::Method => {
                let starts = |prefix: &str| {
                    method.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
                };
                !LIBRARIES.into_iter().any(starts)
            }
            _ => true,
        }
    }
}

/// The directory of a program, with the separator at its end, if all code in it belongs to the program.
fn directory(program: &str) -> Option<&str> {
    let at = program.rfind('\\')?;
    let (directory, name) = program.split_at(at + 1);
    let below = without_volume(directory).to_ascii_lowercase();
    let is_shared = below == "\\" || below.starts_with(r"\windows\") || below.starts_with(r"\systemroot\");
    let is_host = HOSTS.iter().any(|host| host.eq_ignore_ascii_case(name));
    (!is_shared && !is_host).then_some(directory)
}

/// The name that patterns see: the path of the module, and the function.
fn full_name(profile: &Profile, frame: &Frame, label: &str) -> String {
    let Some(location) = frame.location else { return label.to_owned() };
    let module = &profile.modules()[location.module.index()];
    let path = if module.path.is_empty() { &module.name } else { &module.path };
    let named = frame.name.strip_prefix(&*module.name).and_then(|rest| rest.strip_prefix('!'));
    match named.filter(|_| !frame.is_unnamed()) {
        Some(function) => format!("{path}!{function}"),
        None if frame.is_unnamed() => format!("{path}!?"),
        None => format!("{path}!{}", frame.name),
    }
}

fn group_frame(name: &str, first: &Frame) -> Frame {
    let mut name = name.to_owned();
    make_plain(&mut name);
    Frame {
        name,
        origin: Origin::Group,
        mode: first.mode,
        code: first.code,
        location: None,
        source: None,
        inlines: Box::default(),
    }
}
