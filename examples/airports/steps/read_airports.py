"""start: null, or {"file": a CSV, "states": [some of them]} -> [{"state", "airports": [[iata, latitude, longitude, name], ...]}, ...]

One element per state or territory, in alphabetical order: the expand makes a branch of each.
"""

import csv
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SHIPPED = os.path.join(HERE, "..", "data", "airports.csv")
EX_DATAERR = 65  # an error that no retry will mend

asked = json.load(sys.stdin)
if asked is None:
    asked = {}
if not isinstance(asked, dict):
    sys.exit('the input is null or an object such as {"states": ["VT", "NH"]}')

states = {}
unplaced = 0
with open(asked.get("file", SHIPPED), newline="", encoding="utf-8") as file:
    for row in csv.DictReader(file):
        if row["state"] == "NA":
            unplaced += 1
            continue
        airport = [row["iata"], float(row["latitude"]), float(row["longitude"]), row["name"]]
        states.setdefault(row["state"], []).append(airport)

unknown = sorted(set(asked.get("states", [])) - set(states))
if unknown:
    print("no airports in", ", ".join(map(str, unknown)), file=sys.stderr)
    sys.exit(EX_DATAERR)

wanted = asked.get("states") or states
found = [{"state": state, "airports": states[state]} for state in sorted(wanted)]
print(f"{len(found)} states; {unplaced} rows name no state and are left out", file=sys.stderr)
json.dump(found, sys.stdout)
