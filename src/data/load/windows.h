// src/data/load/windows.h: the samples of a stream of tokens: windows of a job's context length,
// side by side. A window of T tokens that begins at token i reads i .. i + T - 1 and predicts i + 1
// .. i + T.
//
// Validation windows are the end of the training text, so that no training window looks into them.
// Training windows cover what is before it; in each epoch all of them begin `shift` tokens later,
// drawn by Philox from (seed, "window", epoch), so that the cuts fall elsewhere.
#pragma once

#include <cstdint>
#include <vector>

#include "src/data/schema.h"

namespace trainyard {

struct WindowPlan {
  int64_t train = 0;             // windows
  int64_t shift_max = 0;         // of an epoch
  int64_t validation = 0;        // windows
  int64_t validation_first = 0;  // the token at which the first of them begins
  int64_t test = 0;              // windows of the test set
};

/// For a schema that is a stream. A share in [0, 1] of the training text's windows is held out. Any
/// count may be 0: the recipe's check decides what a job needs.
WindowPlan plan_windows(const DatasetSchema& schema, int64_t context_length,
                        double validation_fraction);

/// The beginnings of `count` adjacent windows from token `first` on.
std::vector<int64_t> window_starts(int64_t first, int64_t count, int64_t context_length);

}  // namespace trainyard
