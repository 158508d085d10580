//! A filter language over any field resolver.
