//! Plans for the schemas of the class tables, made when they are first asked for.

use std::sync::Arc;

use foldhash::HashMap;

use crate::model::{InType, Length, Schema};
use crate::plan::Plan;

/// One plan for each schema of the tables. The tables are fixed, and so is the number of plans.
#[derive(Clone, Debug, Default)]
pub(super) struct KernelPlans {
    /// By the schema's address, which never changes.
    plans: HashMap<usize, Arc<Plan>>,
}

impl KernelPlans {
    pub fn get(&mut self, schema: &'static Schema) -> &Arc<Plan> {
        let address = std::ptr::from_ref(schema).addr();
        self.plans.entry(address).or_insert_with(|| Arc::new(Plan::new(Arc::new(schema.clone()))))
    }
}

/// Whether the tables know no more than the event's name.
pub(super) fn is_opaque(schema: &Schema) -> bool {
    match &*schema.fields {
        [field] => field.in_type == InType::Binary && field.length == Length::Rest,
        _ => false,
    }
}
