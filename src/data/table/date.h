// src/data/table/date.h: converts dates and times of ISO 8601 to numbers that a model can use.
//
//   2026-01-31   2026-01-31T12:30   2026-01-31 12:30:05.25   ...Z   ...+01:00   ...-0530   ...+01
//
// A time with a zone is converted to UTC; a time without one is assumed to be in UTC. A date column
// becomes these columns:
//
//   days                  days since 1970-01-01, with the time as a fraction
//   year_sin, year_cos    sine and cosine of 2 pi (day of the year - 1) / (365 or 366)
//   week_sin, week_cos    sine and cosine of 2 pi (day of the week, 0 for Monday) / 7
//   day_sin, day_cos      sine and cosine of 2 pi (seconds of the day) / 86400; only if a value of
//                         the training rows has a time
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainyard {

struct Date {
  int64_t day = 0;     // days since 1970-01-01, in UTC
  double seconds = 0;  // seconds since the beginning of the day
  bool has_time = false;

  /// Returns the days since 1970-01-01, with the time as a fraction.
  double days() const { return static_cast<double>(day) + seconds / 86400; }
};

/// Parses a date of the years 1 to 9999; nullopt for any other text.
std::optional<Date> parse_date(std::string_view text);

/// Returns the number of columns that a date column becomes. `times`: a value has a time.
constexpr size_t date_parts(bool times) { return times ? 7 : 5; }
/// Returns the names of the columns of date column `name`: "when.days", "when.year_sin", ...
std::vector<std::string> date_column_names(const std::string& name, bool times);
/// Writes the first out.size() of the date's numbers, in the order above. `offset` is subtracted
/// from the days.
void write_date(const Date& date, double offset, std::span<float> out);

}  // namespace trainyard
