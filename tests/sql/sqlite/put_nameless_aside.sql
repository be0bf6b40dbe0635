UPDATE ductwork_deliveries
   SET due_at = NULL, state = 'failed', error = 'the row of this message is damaged, so it is not sent'
 WHERE state = 'waiting' AND length(id) <> 16
