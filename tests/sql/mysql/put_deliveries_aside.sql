UPDATE (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b STRAIGHT_JOIN ductwork_deliveries FORCE INDEX (PRIMARY)
   SET due_at = NULL, state = 'failed', error = 'the row of this message is damaged, so it is not sent'
 WHERE ductwork_deliveries.id = b.id
