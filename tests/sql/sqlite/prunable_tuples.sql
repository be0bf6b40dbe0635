SELECT t.run_id FROM ductwork_tuples t WHERE t.run_id IN (SELECT c0 FROM ductwork_rows(?1)) LIMIT ?2
