-- Questions that wait for a person, and the time at which each is decided without one: `approve`, or `halt`.
CREATE TABLE ductwork_deadlines (
    branch_id  uuid PRIMARY KEY,
    answer_by  bigint NOT NULL,
    unanswered text NOT NULL
);
CREATE INDEX ductwork_deadlines_due ON ductwork_deadlines (answer_by, branch_id);
-- The person who answered at a step, according to the person's program.
ALTER TABLE ductwork_steps ADD COLUMN answered_by text;
