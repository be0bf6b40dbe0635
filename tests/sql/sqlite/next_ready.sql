SELECT min(ready_at) - CAST(unixepoch('subsec') * 1000000 AS INTEGER) AS wait FROM ductwork_branches WHERE ready_at IS NOT NULL
