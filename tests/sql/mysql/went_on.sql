UPDATE ductwork_departed SET went_on_as = ? WHERE id = ?
