INSERT INTO ductwork_actions (id, at, by_whom, channel, verb, pipeline)
VALUES (?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), ?, ?, ?, ?)
