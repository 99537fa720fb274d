// src/data/problems.h: collects the first problems of a file, each with its place, for one error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/base/result.h"

namespace trainyard {

/// Returns a refusal of a whole file or option: DATASET_INVALID.
Error dataset_error(std::string field, std::string description);

/// Refuses a numeric target of several rows with a single value, from which nothing can be learned.
/// `place` is where the target comes from, for the error.
Status check_numbers_differ(std::span<const float> target, const std::string& place);

class Problems {
 public:
  static constexpr size_t kCountMax = 16;
  bool empty() const { return violations_.empty(); }
  /// Returns true if further problems would be dropped, so that reading can end.
  bool full() const { return violations_.size() >= kCountMax; }
  /// Adds a problem; those beyond the first 16 are only counted.
  void add(std::string place, std::string description);
  void add(const Error& error);
  /// Returns an error with every problem as a violation and the first one as message. Call it only
  /// if !empty().
  Error error() const;

 private:
  std::vector<FieldViolation> violations_;
  size_t count_ = 0;  // of all problems that were added
};

/// Returns the error's message with its other violations, for those who see only the message.
std::string message_with_all(const Error& error);

/// Returns text such as "data: row 3 (line 4), column 'age'". Rows are counted from 1 without the
/// header, lines from 1 with it.
std::string place_of(const std::string& source, int64_t row, int64_t line,
                     const std::string& column);
std::string place_of(const std::string& source, int64_t row, int64_t line);

}  // namespace trainyard
