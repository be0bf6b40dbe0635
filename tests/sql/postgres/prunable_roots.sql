SELECT br.id FROM ductwork_branches br WHERE br.run_id = ANY ($1::uuid[])
