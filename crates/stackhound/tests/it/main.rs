//! Tests of the library over whole traces, in one binary, which is linked once and uses all processors.

mod analysis;
mod chain;
mod cost_scripts;
mod costs;
mod cut;
mod diff;
mod hunt;
mod hunt_matrix;
mod hunt_memory;
mod kept;
mod kstack;
mod loss;
mod measured;
mod moments;
mod one_answer;
mod one_code;
mod open_stacks;
mod presets;
mod rule_fields;
mod scenario;
mod threat_intelligence;
mod walks;
