#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| stackhound_fuzzing::rules(bytes));
