-- A process that was declared dead, and lived, has registered with this id since; null for all others.
ALTER TABLE ductwork_departed ADD COLUMN went_on_as binary(16);
