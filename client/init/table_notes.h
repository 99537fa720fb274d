// client/init/table_notes.h: what a user should know about the rows of a table before trusting a
// validation split: rows that belong together, and rows in order of time.
#pragma once

#include <optional>
#include <string>

#include "client/init/column_profile.h"

namespace trainyard::init {

/// Returns the note about rows of the same subject, such as several visits of each patient; nullopt
/// if no column names one. `target` is the target's column.
std::optional<std::string> note_on_groups(const TableProfile& table, size_t target);

/// Returns the note about rows in order of time; nullopt if there is no such order.
std::optional<std::string> note_on_time(const TableProfile& table, size_t target);

}  // namespace trainyard::init
