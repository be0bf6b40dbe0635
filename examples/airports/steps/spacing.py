"""divide: a state's airports -> how far each is from its nearest neighbour in the same state."""

import json
import math
import sys

EARTH_KM = 6371.0

airports = [(code, name, math.radians(latitude), math.radians(longitude))
            for code, latitude, longitude, name in json.load(sys.stdin)["airports"]]


def vector(latitude, longitude):
    return (math.cos(latitude) * math.cos(longitude), math.cos(latitude) * math.sin(longitude), math.sin(latitude))


# The nearest by chord is the nearest by great circle, and a chord needs no trigonometry per pair.
points = [vector(latitude, longitude) for _, _, latitude, longitude in airports]
nearest_km = []
for i, a in enumerate(points):
    chords = [math.dist(a, b) for j, b in enumerate(points) if i != j]
    if chords:
        nearest_km.append(2 * EARTH_KM * math.asin(min(min(chords) / 2, 1)))

median_km = loneliest = None
if nearest_km:
    ranked = sorted(nearest_km)
    half = len(ranked) // 2
    median_km = round(ranked[half] if len(ranked) % 2 else (ranked[half - 1] + ranked[half]) / 2, 1)
    km = max(nearest_km)
    code, name, _, _ = airports[nearest_km.index(km)]
    loneliest = {"code": code, "name": name, "km": round(km, 1)}

json.dump({"median_km": median_km, "loneliest": loneliest}, sys.stdout)
