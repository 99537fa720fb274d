#include "src/base/field_rows.h"

#include <cmath>

#include "src/base/join.h"
#include "src/base/text.h"

namespace trainyard {
namespace {

constexpr int kPowerMin = 20;  // powers of two from 2^20 and up to 2^-20 are written as such

std::string whole_text(double value) { return std::to_string(static_cast<int64_t>(value)); }

}  // namespace

std::string number_text(double value, bool whole) {
  int exponent = 0;
  if (std::frexp(value, &exponent) == 0.5 && std::abs(exponent - 1) >= kPowerMin) {
    return "2^" + std::to_string(exponent - 1);
  }
  if (whole) return whole_text(value);
  std::string text = short_number(value);
  const size_t e = text.find('e');
  if (e == text.npos) return text;
  const std::string sign = text[e + 1] == '-' ? "-" : "";
  return text.substr(0, e + 1) + sign + text.substr(text.find_first_not_of('0', e + 2));
}

std::string FieldRange::text(bool whole) const {
  if (whole) return number_text(low, true) + ".." + number_text(high, true);
  return (above_low ? "more than " + number_text(low, false)
                    : number_text(low, false) + " or more") +
         " and " + (below_high ? "less than " : "at most ") + number_text(high, false);
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
  if (accepted.empty() || std::ranges::find(accepted, value) != accepted.end()) return;
  const auto nearest = nearest_name(value, accepted);
  violations.add("FIELD_UNKNOWN_VALUE", field,
                 quoted_value(value) + " is not known, expected one of " + joined(accepted, ", ") +
                     (nearest ? "; did you mean '" + *nearest + "'?" : ""));
}

std::string users_text(const FieldNames& users) { return joined(users); }

}  // namespace trainyard
