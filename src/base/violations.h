// src/base/violations.h: collects refused fields, so that a user sees all problems of a spec at
// once and not one per attempt.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "src/base/result.h"

namespace trainyard {

class Violations {
 public:
  static constexpr size_t kMax = 16;  // more are counted, not kept

  /// `field` is the path as the user wrote it. The error's message names the problem by `where`,
  /// which may say more ("model.layers[3] 'conv2': strides").
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
  /// Takes over another check's refusal.
  void add(Error error) {
    if (count_ == 0) {
      reason_ = std::move(error.reason);
      // Several problems: the sentence of the first, without the other check's own count.
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

  /// INVALID_ARGUMENT with the first problem as its message. Only when not empty.
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
