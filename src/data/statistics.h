// src/data/statistics.h: counts and moments of a dataset's training rows, of all formats alike.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "src/data/typed_rows.h"

namespace trainyard {

/// One or two passes over every array; for U8 images only over their sums. Sums run in row order in
/// double: same rows, same bits. Streamed images have been written.
DatasetStatistics measure(const DatasetSchema& schema, const TypedRows& train);

nlohmann::json statistics_to_json(const DatasetStatistics& s);
/// Refusal: DATASET_INVALID, also if they are not those of `schema`.
Result<DatasetStatistics> statistics_from_json(const nlohmann::json& json,
                                               const DatasetSchema& schema);

}  // namespace trainyard
