SELECT min(due_at) - CAST(unixepoch('subsec') * 1000000 AS INTEGER) AS wait FROM ductwork_availabilities WHERE pipeline = ?1
