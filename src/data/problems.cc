#include "src/data/problems.h"

#include <algorithm>

#include "src/base/text.h"

namespace trainyard {

Error dataset_error(std::string field, std::string description) {
  return field_error("DATASET_INVALID", std::move(field), std::move(description));
}

Status check_numbers_differ(std::span<const float> target, const std::string& place) {
  const auto differs = [&](float number) { return number != target.front(); };
  if (target.size() < 2 || std::ranges::any_of(target, differs)) return {};
  return dataset_error(place, "every target is " + short_number(target.front()) +
                                  ", expected different numbers to predict");
}

void Problems::add(std::string place, std::string description) {
  ++count_;
  if (!full()) violations_.push_back({std::move(place), std::move(description)});
}

void Problems::add(const Error& error) {
  for (const FieldViolation& v : error.violations) add(v.field, v.description);
}

Error Problems::error() const {
  TRAINYARD_CHECK(!empty(), "no problems to report");
  const FieldViolation& first = violations_.front();
  std::string message = first.field + ": " + first.description;
  if (violations_.size() > 1) {
    message += " (the first of " + std::to_string(count_) +
               (count_ == kCountMax ? " or more problems)" : " problems)");
  }
  Error e = make_error(ErrorCode::kInvalidArgument, "DATASET_INVALID", std::move(message));
  e.violations = violations_;
  return e;
}

std::string message_with_all(const Error& error) {
  std::string message = error.message;
  for (size_t i = 1; i < error.violations.size(); ++i) {
    const FieldViolation& v = error.violations[i];
    message += (i == 1 ? ". Also: " : "; ") + v.field + ": " + v.description;
  }
  return message;
}

std::string place_of(const std::string& source, int64_t row, int64_t line) {
  return source + ": row " + std::to_string(row) + " (line " + std::to_string(line) + ")";
}
std::string place_of(const std::string& source, int64_t row, int64_t line,
                     const std::string& column) {
  return place_of(source, row, line) + ", column " + quoted_value(column);
}

}  // namespace trainyard
