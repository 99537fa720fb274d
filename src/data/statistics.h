// src/data/statistics.h: computes the statistics of a dataset's training rows, for all formats.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "src/data/typed_rows.h"

namespace trainyard {

/// Returns statistics of the numbers minus `offset`, as the rows store them.
NumberStatistics minus_offset(NumberStatistics s, double offset);

/// Makes one or two passes over every array, for U8 images only over their sums. Sums are in double
/// precision and in row order, so that the same rows give the same bits. Streamed images must have
/// been written before.
/// The statistics are in the columns' own units, whatever their offsets.
DatasetStatistics measure(const DatasetSchema& schema, const TypedRows& train);

/// Returns statistics of the documents' lengths.
NumberStatistics measure_lengths(const DocumentCounts& documents);

nlohmann::json statistics_to_json(const DatasetStatistics& s);
/// Refusal: DATASET_INVALID, also if the statistics do not fit `schema`.
Result<DatasetStatistics> statistics_from_json(const nlohmann::json& json,
                                               const DatasetSchema& schema);

}  // namespace trainyard
