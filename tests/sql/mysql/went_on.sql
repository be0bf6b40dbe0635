UPDATE ductwork_departed SET went_on_as = ? WHERE id = ? AND death IS NOT NULL
