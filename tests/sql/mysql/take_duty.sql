INSERT INTO ductwork_duties (name, holder, until) VALUES (?, ?, 0) ON DUPLICATE KEY UPDATE name = ductwork_duties.name;
UPDATE ductwork_duties SET holder = ?, until = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + ?
 WHERE name = ? AND (holder = ? OR until <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) OR until > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + ?);
