DELETE FROM ductwork_deadlines WHERE ductwork_deadlines.branch_id = ANY ($1::uuid[]) AND answer_by <= $2
