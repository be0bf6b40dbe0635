UPDATE ductwork_webhooks SET seen = ? WHERE name = ? AND (seen < ? OR seen > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
