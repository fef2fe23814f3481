"""Every operation that is measured, in the order of the report."""

import elementwise
import fused
import norms
import products
import routing
import softmax

ENTRIES = [*elementwise.ENTRIES, *norms.ENTRIES, *softmax.ENTRIES, *fused.ENTRIES, *routing.ENTRIES,
           *products.ENTRIES]
GROUPS = list(dict.fromkeys(entry.group for entry in ENTRIES))
