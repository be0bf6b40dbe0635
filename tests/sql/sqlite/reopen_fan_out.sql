UPDATE ductwork_fan_outs SET arrived = arrived - 1, fired_at = NULL
 WHERE id = ?1 AND arrived = width
