INSERT INTO ductwork_actions (id, at, by_whom, channel, verb, pipeline)
VALUES (?1, CAST(unixepoch('subsec') * 1000000 AS INTEGER), ?2, ?3, ?4, ?5)
