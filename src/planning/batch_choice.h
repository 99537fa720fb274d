// src/planning/batch_choice.h: the number that `batch_size: auto` stands for. Pure but for the
// trials, which the caller makes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "src/base/result.h"

namespace trainyard {

/// The figures of a plan of the job with one size of its batches.
struct BatchTrial {
  int64_t plan_bytes = 0;  // in each device
  int64_t train_rows = 0;
  int64_t nodes = 0;  // what planning costs grows with them
  // By the device's measured rates; NOT_FOUND/RATE_UNKNOWN says why there is none.
  Result<double> rows_per_second = 0.0;
};

struct BatchSearch {
  int64_t unit = 1;            // what the size is a multiple of
  int64_t plan_bytes_max = 0;  // that the device has for a plan; 0: unknown
  std::function<Result<BatchTrial>(int64_t rows)> try_rows;
};

/// A size, and why it is that, in a sentence.
struct BatchChoice {
  int64_t rows = 0;
  std::string message;
};

/// The smallest size that is within 5 % of the best rate of those that fit: `unit` times a power of
/// two, at most the number of training rows and 65536. Very large networks are tried at some of the
/// powers only, so that all trials together plan a bounded number of nodes. If nothing fits, `unit`
/// itself, which the caller refuses or makes to fit. Where no rate is known, the default of 64 rows
/// or as many of them as fit. Errors are those of the trials; what any size has is said of one.
Result<BatchChoice> choose_batch_size(const BatchSearch& search);

}  // namespace trainyard
