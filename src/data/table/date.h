// src/data/table/date.h: converts dates and times to numbers that a model can use.
//
//   2026-01-31   2026/1/31   31.01.2026   1/31/2026   6-Aug-09   Jan 31, 2026
//   ... followed by a time: T12:30   12:30:05.25   2:30 PM   and a zone: Z   +01:00   -0530   +01
//   02:31:38     a time of day or a duration
//
// A time with a zone is converted to UTC; a time without one is assumed to be in UTC. A date column
// becomes these columns:
//
//   days                  days since 1970-01-01, with the time as a fraction
//   year_sin, year_cos    sine and cosine of 2 pi (day of the year - 1) / (365 or 366)
//   week_sin, week_cos    sine and cosine of 2 pi (day of the week, 0 for Monday) / 7
//   day_sin, day_cos      sine and cosine of 2 pi (seconds of the day) / 86400; only if a value of
//                         the training rows has a time
//
// A column of times alone becomes hours, day_sin and day_cos.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainyard {

/// What the numbers of a date mean, in their order. In every order but kTime, dates that begin with
/// a year of four digits or name the month are read too.
enum class DateOrder : uint8_t { kYearFirst, kDayFirst, kMonthFirst, kTime };
inline constexpr std::array<DateOrder, 4> kDateOrders = {
    DateOrder::kYearFirst, DateOrder::kDayFirst, DateOrder::kMonthFirst, DateOrder::kTime};

/// Returns the order's name in settings, "day_first"; "" for kYearFirst.
const char* name_of(DateOrder order);
std::optional<DateOrder> find_date_order(std::string_view name);

struct Date {
  int64_t day = 0;     // days since 1970-01-01, in UTC; of a time alone: whole days
  double seconds = 0;  // seconds since the beginning of the day
  bool has_time = false;
  bool has_zone = false;

  /// Returns the days since 1970-01-01, with the time as a fraction.
  double days() const { return static_cast<double>(day) + seconds / 86400; }
  /// Returns the hours of a time alone.
  double hours() const { return static_cast<double>(24 * day) + seconds / 3600; }
};

/// Parses a date of the years 1 to 9999, or for kTime a time; nullopt for any other text. Of years
/// with two digits, 69 to 99 are before 2000 (as in POSIX).
std::optional<Date> parse_date(std::string_view text, DateOrder order);

/// A set of orders, one bit each.
using DateOrders = uint8_t;
inline constexpr DateOrders kAllDateOrders = 15;
constexpr DateOrders bit_of(DateOrder order) {
  return static_cast<DateOrders>(1u << static_cast<unsigned>(order));
}
/// Returns the orders in which the text is a date; 0 if it is none.
DateOrders possible_orders(std::string_view text);
/// Returns the only order that remains, or kYearFirst if it is possible; nullopt if the order is
/// unclear or there is none.
std::optional<DateOrder> only_order(DateOrders orders);

/// How the dates of a column are written, and which columns they become.
struct DateForm {
  DateOrder order = DateOrder::kYearFirst;
  bool times = false;  // a value has a time
};

/// Returns the number of columns that a date column becomes.
constexpr size_t date_parts(DateForm form) {
  return form.order == DateOrder::kTime ? 3 : form.times ? 7 : 5;
}
/// Returns the names of the columns of date column `name`: "when.days", "when.year_sin", ...
std::vector<std::string> date_column_names(const std::string& name, DateForm form);
/// Writes the first out.size() of the date's numbers, in the order above. `offset` is subtracted
/// from the first one.
void write_date(const Date& date, DateOrder order, double offset, std::span<float> out);

}  // namespace trainyard
