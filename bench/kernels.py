"""Every operation that is measured, in the order of the report."""

import batch_norm
import elementwise
import fused
import fused_norms
import linear
import norms
import products
import routing
import softmax

ENTRIES = [*elementwise.ENTRIES, *norms.ENTRIES, *fused_norms.ENTRIES, *batch_norm.ENTRIES, *softmax.ENTRIES, *fused.ENTRIES,
           *routing.ENTRIES, *products.ENTRIES, *linear.ENTRIES]
GROUPS = list(dict.fromkeys(entry.group for entry in ENTRIES))
