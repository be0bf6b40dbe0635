"""collapse: one row per state, in the expand's order -> the report; draws out/airports.svg beside it.

Writing the same file again does no harm, so the step may safely run twice: the picture is
written aside and renamed into place, and never seen half done.
"""

import json
import math
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.normpath(os.path.join(HERE, "..", "out"))

NAMES = dict(pair.split("=") for pair in """
AK=Alaska AL=Alabama AR=Arkansas AS=American_Samoa AZ=Arizona CA=California CO=Colorado CQ=Northern_Marianas
CT=Connecticut DC=District_of_Columbia DE=Delaware FL=Florida GA=Georgia GU=Guam HI=Hawaii IA=Iowa ID=Idaho
IL=Illinois IN=Indiana KS=Kansas KY=Kentucky LA=Louisiana MA=Massachusetts MD=Maryland ME=Maine MI=Michigan
MN=Minnesota MO=Missouri MS=Mississippi MT=Montana NC=North_Carolina ND=North_Dakota NE=Nebraska
NH=New_Hampshire NJ=New_Jersey NM=New_Mexico NV=Nevada NY=New_York OH=Ohio OK=Oklahoma OR=Oregon
PA=Pennsylvania PR=Puerto_Rico RI=Rhode_Island SC=South_Carolina SD=South_Dakota TN=Tennessee TX=Texas UT=Utah
VA=Virginia VI=Virgin_Islands VT=Vermont WA=Washington WI=Wisconsin WV=West_Virginia WY=Wyoming
""".split())


def name(state):
    return NAMES.get(state, state).replace("_", " ")


def table(rows):
    """The states by distance between neighbours, widest first."""
    lines = []
    for row in rows:
        far = row["loneliest"] or {"name": None, "km": None}
        lines.append({
            "state": name(row["state"]),
            "airports": row["airports"],
            "apart_km": row["median_km"] and round(row["median_km"]),
            "loneliest": far["name"],
            "loneliest_km": far["km"] and round(far["km"]),
        })
    return lines


def shade(km, widest):
    """Green where the next airport is near, red where it is far."""
    return f"hsl({round(130 * (1 - min(km, widest) / widest))} 65% 45%)"


def picture(rows):
    """A map: one circle per state at the centre of its airports, as large as there are many."""
    scale, north, west = 13, 66, -161
    drawn = [row for row in rows if row["centre"][1] > west and row["centre"][0] > 15]
    widest = max((row["median_km"] or 0 for row in drawn), default=0) or 1
    shapes = []
    for row in sorted(drawn, key=lambda row: -row["airports"]):
        latitude, longitude = row["centre"]
        x, y = (longitude - west) * scale * 0.8, (north - latitude) * scale
        radius = 3 + 1.8 * math.sqrt(row["airports"])
        apart = f'{row["median_km"]:.0f} km apart' if row["median_km"] else "alone"
        shapes.append(
            f'<g><title>{name(row["state"])}: {row["airports"]} airports, {apart}</title>'
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{shade(row["median_km"] or 0, widest)}"/>'
            f'<text x="{x:.1f}" y="{y + 3.5:.1f}">{row["state"]}</text></g>')
    return "\n".join([
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1020 640" font-family="sans-serif">',
        '<style>rect{fill:#fff} circle{fill-opacity:.75} text{font-size:10px;text-anchor:middle} '
        '.note{font-size:13px;text-anchor:start} .head{font-size:22px;text-anchor:start}</style>',
        '<rect width="1020" height="640"/>',
        '<text class="head" x="330" y="42">How far is it to the next airport?</text>',
        '<text class="note" x="330" y="64">area: number of airports; green to red: '
        f'median distance to the nearest one in the state, up to {widest:.0f} km</text>',
        *shapes, "</svg>", ""])


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    aside = f"{path}.{os.getpid()}"
    with open(aside, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(aside, path)


rows = json.load(sys.stdin)
if not rows:
    sys.exit(65)  # EX_DATAERR: nothing was asked for, and asking again will not change that
rows.sort(key=lambda row: (-(row["median_km"] or 0), row["state"]))
lonely = [row for row in rows if row["loneliest"]]
most = max(rows, key=lambda row: row["airports"])
said = {}
for row in rows:
    if row["word"]:
        said[row["word"]] = said.get(row["word"], 0) + row["times"]
words = sorted(said, key=lambda word: (-said[word], word))
svg = os.path.join(OUT, "airports.svg")
write(svg, picture(rows))

json.dump({
    "airports": sum(row["airports"] for row in rows),
    "states": len(rows),
    "most_airports": {"state": name(most["state"]), "airports": most["airports"]},
    "loneliest": [
        {"airport": row["loneliest"]["name"], "state": name(row["state"]), "km": row["loneliest"]["km"]}
        for row in sorted(lonely, key=lambda row: -row["loneliest"]["km"])[:3]
    ],
    "favourite_words": words[:5],
    "map": svg,
    "table": table(rows),
}, sys.stdout)
