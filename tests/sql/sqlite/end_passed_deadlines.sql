DELETE FROM ductwork_deadlines WHERE ductwork_deadlines.branch_id IN (SELECT c0 FROM ductwork_rows(?1)) AND answer_by <= ?2
