INSERT INTO ductwork_tuples (run_id, "key", value, first_set_at, last_set_at)
SELECT ?, t."key", t.value, t.first_set_at, t.last_set_at
  FROM ductwork_tuples t WHERE t.run_id = ?
