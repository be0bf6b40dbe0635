"""combine: [Extent's, Spacing's, Words' output], in the order the divide lists them -> one row of the report."""

import json
import sys

extent, spacing, words = json.load(sys.stdin)
json.dump({**extent, **spacing, **words}, sys.stdout)
