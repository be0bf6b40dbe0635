"""expand: one state -> the same state, tidied.

An airport listed twice (same code) or on the spot of another is dropped. Longitudes become
degrees west, so that the Aleutians do not end up on the far side of the map. Guam and the
Northern Marianas lie east of Greenwich; the file has lost their sign.
"""

import json
import sys

EAST = {"GU", "CQ"}

element = json.load(sys.stdin)
codes, spots, kept = set(), set(), []
for code, latitude, longitude, name in sorted(element["airports"]):
    if element["state"] in EAST:
        longitude = abs(longitude)
    if longitude > 0:
        longitude = round(longitude - 360, 8)
    spot = (round(latitude, 3), round(longitude, 3))
    if code in codes or spot in spots:
        continue
    codes.add(code)
    spots.add(spot)
    kept.append([code, latitude, longitude, name])

json.dump({"state": element["state"], "airports": kept}, sys.stdout)
