#!/bin/sh
# divide: a state's airports -> the commonest word in their names that says something.
LC_ALL=C
export LC_ALL

plain='Air|Airpark|Airport|Arpt|Base|Co|County|Cty|City|Field|Fld|Intl|International|Muni|Municipal|Regional|Rgnl|St|State|The|Of|And|SPB|Seaplane|AFB|New|North|South|East|West'

tr '[' '\n' |
    sed -n -e 's/\\"//g' -e 's/^"[^"]*", *[^,]*, *[^,]*, *"\([^"]*\)".*/\1/p' |
    tr -cs 'A-Za-z' '\n' |
    awk 'length($0) > 2' |
    { grep -vixE "$plain" || :; } |
    sort | uniq -c | sort -k1,1nr -k2,2 |
    awk 'NR == 1 && $1 > 1 { word = "\"" $2 "\""; times = $1 }
         END { printf "{\"word\":%s,\"times\":%d}\n", word ? word : "null", times }'
