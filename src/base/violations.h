// src/base/violations.h: collects refused fields, so that one error reports all problems of a spec.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "src/base/result.h"

namespace trainyard {

class Violations {
 public:
  static constexpr size_t kMax = 16;  // further violations are only counted

  /// `field` is the path as the user wrote it. `where` replaces it in the error's message and may
  /// contain more, for example "model.layers[3] 'conv2': strides".
  void add(std::string reason, std::string field, std::string where, std::string description) {
    if (count_++ == 0) {
      reason_ = std::move(reason);
      message_ = std::move(where) + ": " + description;
    }
    if (kept_.size() < kMax) kept_.push_back({std::move(field), std::move(description)});
  }
  void add(std::string reason, std::string field, std::string description) {
    std::string where = field;
    add(std::move(reason), std::move(field), std::move(where), std::move(description));
  }
  /// Adds the violations of another check's error.
  void add(Error error) {
    if (count_ == 0) {
      reason_ = std::move(error.reason);
      // The message of several problems ends with their count, which to_error() adds itself.
      message_ = error.violations.size() > 1
                     ? error.violations[0].field + ": " + error.violations[0].description
                     : std::move(error.message);
    }
    count_ += error.violations.empty() ? 1 : error.violations.size();
    for (FieldViolation& v : error.violations) {
      if (kept_.size() < kMax) kept_.push_back(std::move(v));
    }
  }

  bool empty() const { return count_ == 0; }
  size_t count() const { return count_; }

  /// Returns INVALID_ARGUMENT with the first problem as its message. Call it only if !empty().
  Error to_error() const {
    Error e{ErrorCode::kInvalidArgument, reason_, message_, {}, kept_};
    if (count_ > 1) {
      e.message +=
          " (and " + std::to_string(count_ - 1) + " more problem" + (count_ > 2 ? "s)" : ")");
    }
    return e;
  }

 private:
  size_t count_ = 0;
  std::string reason_;
  std::string message_;
  std::vector<FieldViolation> kept_;
};

}  // namespace trainyard
