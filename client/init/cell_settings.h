// client/init/cell_settings.h: chooses the settings by which the cells of a table get their
// meaning: which texts are missing values, and how numbers are written.
#pragma once

#include <string>
#include <vector>

#include "client/init/column_profile.h"
#include "client/init/job_draft.h"
#include "src/data/dataset.h"

namespace trainyard::init {

/// Sets `missing`, `decimal`, `thousands` and `numbers` as the cells suggest. Returns whether a
/// setting was changed, so that the table must be profiled again.
bool choose_cell_settings(const TableProfile& table, CsvOptions& csv);

/// Returns the fields of these settings, as a job file writes them.
std::vector<DraftField> cell_fields(const TableProfile& table, const CsvOptions& csv);

}  // namespace trainyard::init
