SELECT r.id FROM ductwork_new_runs AS new_runs STRAIGHT_JOIN ductwork_runs r ON r.id = new_runs.id
