//! The evaluation of rules, compared with a second one that is written literally from the reference:
//! it reads the syntax tree for each event, and looks for the chains of sequences by trying all.

mod chains;
mod conditions;
mod corpus;
mod event;
mod literal;
mod random;
mod reasons;
mod sequences;
mod solve;
mod three_values;
