DELETE FROM ductwork_deadlines WHERE branch_id IN (SELECT c0 FROM ductwork_rows(?1))
