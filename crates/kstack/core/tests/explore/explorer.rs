//! Takes a system through every order of steps and every choice, and counts states, transitions and
//! paths.
//!
//! States are not copied: an execution is repeated from its start up to the last choice, where it
//! takes another alternative. It ends at a state that was visited before. In the resulting graph of
//! states, the paths from the start to the ends are counted.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use crate::defects::Violation;
use crate::scenario::Scenario;
use crate::system::{Ended, Move, System};
use crate::tape::Tape;

/// The result of an exploration.
#[derive(Debug, Default)]
pub struct Visited {
    pub states: usize,
    pub transitions: usize,
    /// The number of paths from the start to an end.
    pub paths: u128,
    /// The maximum number of steps of any request.
    pub steps: u32,
    pub ends: BTreeSet<Ended>,
    /// The violations, each with a short path to it.
    pub violations: BTreeMap<Violation, Vec<Move>>,
}

impl fmt::Display for Visited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { states, transitions, paths, steps, ends, .. } = self;
        write!(
            f,
            "{states} states, {transitions} transitions, {paths} paths, at most {steps} steps of a request; {ends:?}"
        )
    }
}

/// A transition from one state to another.
struct Edge {
    from: u32,
    to: u32,
    step: Move,
}

/// The graph of states, which are numbered in the order of discovery.
#[derive(Default)]
struct Graph {
    numbers: HashMap<u128, u32>,
    edges: Vec<Edge>,
    /// States without further moves.
    leaves: BTreeSet<u32>,
}

impl Graph {
    /// The number of a state, and whether it is new.
    fn number(&mut self, fingerprint: u128) -> (u32, bool) {
        let next = self.numbers.len() as u32;
        let number = *self.numbers.entry(fingerprint).or_insert(next);
        (number, number == next)
    }

    /// Counts the paths from the start to the leaves, and the maximum number of steps of a request
    /// on any path. No path visits a state twice.
    fn measure(&self) -> (u128, u32) {
        let mut edges_in = vec![0_u32; self.numbers.len()];
        let mut from = vec![Vec::new(); self.numbers.len()];
        for (number, edge) in self.edges.iter().enumerate() {
            edges_in[edge.to as usize] += 1;
            from[edge.from as usize].push(number);
        }
        let mut paths = vec![0_u128; self.numbers.len()];
        let mut steps: Vec<BTreeMap<usize, u32>> = vec![BTreeMap::new(); self.numbers.len()];
        paths[0] = 1;
        let (mut ready, mut passed, mut total, mut most) = (vec![0_usize], 0, 0_u128, 0);
        while let Some(state) = ready.pop() {
            passed += 1;
            if self.leaves.contains(&(state as u32)) {
                total = total.checked_add(paths[state]).expect("fewer than 2^128 paths");
            }
            let here = std::mem::take(&mut steps[state]);
            most = here.values().copied().fold(most, u32::max);
            for &edge in &from[state] {
                let Edge { to, step, .. } = self.edges[edge];
                let to = to as usize;
                paths[to] = paths[to].checked_add(paths[state]).expect("fewer than 2^128 paths");
                for (&request, &count) in &here {
                    let there = steps[to].entry(request).or_default();
                    *there = count.max(*there);
                }
                if let Move::Request(request) = step {
                    let there = steps[to].entry(request).or_default();
                    *there = (here.get(&request).unwrap_or(&0) + 1).max(*there);
                }
                edges_in[to] -= 1;
                if edges_in[to] == 0 {
                    ready.push(to);
                }
            }
        }
        assert_eq!(passed, self.numbers.len(), "a path visits a state twice: a machine spins");
        (total, most)
    }
}

/// Explores a scenario completely.
pub fn explore(scenario: &Scenario) -> Visited {
    let mut visited = Visited::default();
    let mut graph = Graph::default();
    // The states of the current execution, and the steps between them.
    let (mut trail, mut steps) = (Vec::new(), Vec::new());
    let mut tape = Tape::default();
    loop {
        let mut system = System::new(scenario, tape);
        if trail.is_empty() {
            trail.push(graph.number(system.fingerprint()).0);
        }
        steps.clear();
        run(&mut system, &mut graph, &mut visited, &mut trail, &mut steps);
        if let Some(violation) = system.world.violation.get() {
            let shortest = visited.violations.entry(violation).or_insert_with(|| steps.clone());
            if steps.len() < shortest.len() {
                shortest.clone_from(&steps);
            }
        }
        tape = system.world.tape.into_inner();
        if !tape.next() {
            break;
        }
    }
    (visited.states, visited.transitions) = (graph.numbers.len(), graph.edges.len());
    (visited.paths, visited.steps) = graph.measure();
    visited
}

/// Runs one execution until its end, a state that was visited before, or a violation.
fn run(
    system: &mut System,
    graph: &mut Graph,
    visited: &mut Visited,
    trail: &mut Vec<u32>,
    steps: &mut Vec<Move>,
) {
    loop {
        let here = trail[steps.len()];
        let moves = system.moves();
        if moves.is_empty() {
            system.world.check_end();
            graph.leaves.insert(here);
        }
        if moves.is_empty() || system.world.violation.get().is_some() {
            return;
        }
        let step = moves[system.world.choose(moves.len())];
        system.take(step);
        steps.push(step);
        visited.ends.extend(system.ended);
        if system.world.violation.get().is_some() {
            return;
        }
        if system.world.tape.borrow().is_at_its_end() {
            let (there, is_new) = graph.number(system.fingerprint());
            graph.edges.push(Edge { from: here, to: there, step });
            trail.truncate(steps.len());
            trail.push(there);
            if !is_new {
                return;
            }
        }
    }
}
