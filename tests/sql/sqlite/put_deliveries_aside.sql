UPDATE ductwork_deliveries
   SET due_at = NULL, state = 'failed', error = 'the row of this message is damaged, so it is not sent'
 WHERE ductwork_deliveries.id IN (SELECT c0 FROM ductwork_rows(?1))
