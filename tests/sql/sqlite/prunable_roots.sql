SELECT br.id FROM ductwork_branches br WHERE br.run_id IN (SELECT c0 FROM ductwork_rows(?1))
