//! The rules of attribution, one row a rule.
