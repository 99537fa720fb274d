// src/data/table/cell_warnings.h: warnings about cells whose meaning is unclear: "01" beside "1",
// "NA" among names, whole numbers with more digits than 32 bits keep.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "src/data/dataset.h"
#include "src/data/table/csv_columns.h"

namespace trainyard {

/// Returns the warnings about the training file. `schema` has the columns' final categories and
/// classes. Reads the file again if it has whole numbers that 32 bits may not tell apart.
Result<std::vector<DataWarning>> find_cell_warnings(const CsvOptions& options,
                                                    const CellReader& cells,
                                                    const std::filesystem::path& path,
                                                    const CsvScan& scan,
                                                    const DatasetSchema& schema);

/// Returns the texts among the names that usually mean a missing value: "NA", "N/A", "null".
std::vector<std::string> missing_names(const std::vector<std::string>& names);

}  // namespace trainyard
