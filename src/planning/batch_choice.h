// src/planning/batch_choice.h: chooses the batch size for `batch_size: auto`. Pure, except for the
// trials that the caller provides.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "src/base/result.h"

namespace trainyard {

/// The figures of the job's plan for one batch size.
struct BatchTrial {
  int64_t plan_bytes = 0;  // memory on each device
  int64_t train_rows = 0;
  int64_t nodes = 0;  // graph nodes, which determine the time that planning takes
  // Predicted from the device's measured rates; NOT_FOUND/RATE_UNKNOWN if one is missing.
  Result<double> rows_per_second = 0.0;
};

struct BatchSearch {
  int64_t unit = 1;            // the size must be a multiple of it
  int64_t plan_bytes_max = 0;  // the device's memory for a plan; 0: unknown
  std::function<Result<BatchTrial>(int64_t rows)> try_rows;
};

/// A batch size, and the reason for it as a sentence.
struct BatchChoice {
  int64_t rows = 0;
  std::string message;
};

/// Chooses the smallest size that fits and whose rate is within 5 % of the best one. Sizes are
/// `unit` times a power of two, at most the number of training rows and 65536. For very large
/// networks only some of the powers are tried, so that all trials together plan a bounded number of
/// nodes. If nothing fits, returns `unit`, which the caller refuses or makes fit. Without rates,
/// returns the default of 64 rows or as many as fit, up to that. Errors are those of the trials.
Result<BatchChoice> choose_batch_size(const BatchSearch& search);

}  // namespace trainyard
