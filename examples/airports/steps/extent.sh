#!/bin/sh
# divide: a state's airports -> their centre and how far they spread, in kilometres.
# Every airport is an array of its own, so `[` separates the records:  "00M", 31.95, -89.23, "Thigpen"],
# What stands before the first of them is the head, with the name of the state.
LC_ALL=C exec awk '
BEGIN { RS = "["; FS = ", *"; south = 90; north = -90; west = 360; east = -360 }
match($0, /"state": *"[A-Za-z]+"/) { split(substr($0, RSTART, RLENGTH), head, "\""); state = head[4] }
NF < 4 { next }
{
    latitude = $2 + 0; longitude = $3 + 0; count++
    latitudes += latitude; longitudes += longitude
    if (latitude < south) south = latitude
    if (latitude > north) north = latitude
    if (longitude < west) west = longitude
    if (longitude > east) east = longitude
}
END {
    if (!count || state == "") { print "no state with airports in the input" > "/dev/stderr"; exit 65 }
    middle = latitudes / count
    km = 111.195                                  # of one degree, on a sphere of 6,371 km
    wide = (east - west) * km * cos(middle * 3.14159265358979 / 180)
    printf "{\"state\":\"%s\",\"airports\":%d,\"centre\":[%.4f,%.4f],\"high_km\":%.0f,\"wide_km\":%.0f}\n", \
        state, count, middle, longitudes / count, (north - south) * km, wide
}'
