UPDATE ductwork_fan_outs SET arrived = arrived - 1, fired_at = NULL
 WHERE id = ? AND arrived = width
