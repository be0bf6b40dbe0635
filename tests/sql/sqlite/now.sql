SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER) AS now
