//! The format of speedscope, read as JSON.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::Value;
use stackhound_export::speedscope;

use crate::profiles::{facts, shown};

proptest! {
    #[test]
    fn samples_of_each_thread_are_in_the_order_of_time(facts in facts()) {
        let mut text = Vec::new();
        speedscope::write(&facts.build(), &mut text).unwrap();
        let file: Value = serde_json::from_slice(&text).unwrap();
        let names: Vec<&str> = file["shared"]["frames"].as_array().unwrap().iter().map(|f| f["name"].as_str().unwrap()).collect();
        let profiles = file["profiles"].as_array().unwrap();
        prop_assert!(file["activeProfileIndex"].as_u64().unwrap() < profiles.len() as u64);
        // By thread: the path of each sample, repeated by its weight.
        let mut expected = BTreeMap::<usize, Vec<_>>::new();
        for &(thread, time, stack, weight) in &facts.samples {
            let path: Vec<String> = facts.stacks[stack].iter().map(|&frame| shown(&facts.frames[frame].0)).collect();
            expected.entry(thread).or_default().push((time, path, u64::from(weight)));
        }
        prop_assert_eq!(profiles.len(), expected.len());
        let mut total = 0;
        for (profile, (thread, mut samples)) in profiles.iter().zip(expected) {
            samples.sort_by_key(|sample| sample.0);
            let unfolded = |path: &[String], weight: u64| vec![path.join("\0"); weight as usize];
            let wanted: Vec<_> = samples.iter().flat_map(|(_, path, weight)| unfolded(path, *weight)).collect();
            let weights: Vec<u64> = profile["weights"].as_array().unwrap().iter().map(|w| w.as_u64().unwrap()).collect();
            let stacks = profile["samples"].as_array().unwrap();
            prop_assert_eq!(stacks.len(), weights.len());
            let read: Vec<_> = stacks.iter().zip(&weights).flat_map(|(stack, &weight)| {
                let path: Vec<String> = stack.as_array().unwrap().iter().map(|f| names[f.as_u64().unwrap() as usize].to_owned()).collect();
                unfolded(&path, weight)
            }).collect();
            prop_assert_eq!(read, wanted, "thread {}", thread);
            prop_assert_eq!(&profile["type"], "sampled");
            prop_assert_eq!(profile["endValue"].as_u64(), Some(weights.iter().sum()));
            total += weights.iter().sum::<u64>();
        }
        prop_assert_eq!(total, facts.weight());
    }
}
