"""Every operation that is measured, in the order of the report."""

import batch_norm
import elementwise
import fused
import fused_norms
import linear
import moe
import norms
import packed_qkv
import products
import projection
import routing
import softmax

ENTRIES = [*elementwise.ENTRIES, *norms.ENTRIES, *fused_norms.ENTRIES, *batch_norm.ENTRIES, *softmax.ENTRIES, *fused.ENTRIES,
           *routing.ENTRIES, *packed_qkv.ENTRIES, *products.ENTRIES, *linear.ENTRIES, *moe.ENTRIES, *projection.ENTRIES]
GROUPS = list(dict.fromkeys(entry.group for entry in ENTRIES))
