//! Plans for the schemas of the class tables. Each plan is created when it is first needed.

use std::sync::{Arc, LazyLock, OnceLock};

use foldhash::HashMap;

use super::catalogue::CATALOGUE;
use crate::model::Schema;
use crate::plan::Plan;

/// By the address of the schema, which never changes.
type Plans = HashMap<usize, (&'static Arc<Schema>, OnceLock<Arc<Plan>>)>;

static PLANS: LazyLock<Plans> = LazyLock::new(|| {
    let addressed = |schema: &'static Arc<Schema>| (address(schema), (schema, OnceLock::new()));
    CATALOGUE.schemas().map(addressed).collect()
});

fn address(schema: &Schema) -> usize {
    std::ptr::from_ref(schema).addr()
}

/// The plan of a schema that a look-up returned; `None` for any other schema. The cost is one hash
/// of an address.
pub fn plan(schema: &'static Schema) -> Option<&'static Arc<Plan>> {
    let (schema, plan) = PLANS.get(&address(schema))?;
    Some(plan.get_or_init(|| Arc::new(Plan::new(Arc::clone(schema)))))
}

#[cfg(test)]
mod tests {
    use stackhound_types::PointerSize::{Eight, Four};

    use super::*;
    use crate::kernel::lookup;

    #[test]
    fn each_layout_has_one_plan() {
        for pointer in [Four, Eight] {
            let schema = lookup(0x0301, 4, pointer).unwrap();
            let planned = plan(schema).unwrap();
            assert!(std::ptr::eq(&raw const **planned.schema(), schema));
            assert!(Arc::ptr_eq(planned, plan(schema).unwrap()));
        }
        assert!(plan(Box::leak(Box::new(lookup(0x0301, 4, Eight).unwrap().clone()))).is_none());
    }
}
