#include "src/base/field_rows.h"

#include "src/base/join.h"
#include "src/base/text.h"

namespace trainyard {
namespace {

/// A range's bound for a message, written 1e6 instead of 1e+06.
std::string bound(double value) {
  std::string text = short_number(value);
  const size_t e = text.find("e+");
  if (e == text.npos) return text;
  const size_t digits = text.find_first_not_of('0', e + 2);
  return text.substr(0, e + 1) + text.substr(digits);
}

std::string whole_text(double value) { return std::to_string(static_cast<int64_t>(value)); }

}  // namespace

std::string FieldRange::text(bool whole) const {
  if (whole) return whole_text(low) + ".." + whole_text(high);
  return (above_low ? "more than " + bound(low) : bound(low) + " or more") + " and " +
         (below_high ? "less than " : "at most ") + bound(high);
}

void check_number(double value, bool whole, const FieldRange& range, const std::string& field,
                  Violations& violations) {
  if (range.contains(value)) return;
  violations.add("FIELD_OUT_OF_RANGE", field,
                 (whole ? whole_text(value) : short_number(value)) + " is out of range, expected " +
                     range.text(whole));
}

void check_name(const std::string& value, const FieldNames& accepted, const std::string& field,
                Violations& violations) {
  if (std::ranges::find(accepted, value) != accepted.end()) return;
  const auto nearest = nearest_name(value, accepted);
  violations.add("FIELD_UNKNOWN_VALUE", field,
                 quoted_value(value) + " is not known, expected one of " + joined(accepted, ", ") +
                     (nearest ? "; did you mean '" + *nearest + "'?" : ""));
}

std::string users_text(const FieldNames& users) { return joined(users); }

}  // namespace trainyard
