DELETE FROM ductwork_tuples WHERE ductwork_tuples.run_id IN (SELECT c0 FROM ductwork_rows(?1))
