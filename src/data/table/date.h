// src/data/table/date.h: dates and times of ISO 8601 as numbers that a model can use.
//
//   2026-01-31   2026-01-31T12:30   2026-01-31 12:30:05.25   ...Z   ...+01:00   ...-0530   ...+01
//
// A time with a zone is brought to UTC first; one without is taken as UTC. A date makes these
// columns, of the instant in UTC:
//
//   days                  since 1970-01-01, with the time as a fraction
//   year_sin, year_cos    the day's place in its year: 2 pi (day - 1) / (365 or 366)
//   week_sin, week_cos    its place in the week: 2 pi (0 for Monday to 6) / 7
//   day_sin, day_cos      the time's place in the day: 2 pi (seconds of it) / 86400. Only where a
//                         value of the training rows has a time
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainyard {

struct Date {
  int64_t day = 0;     // since 1970-01-01, in UTC
  double seconds = 0;  // of the day
  bool has_time = false;
};

/// Nothing for anything but a date from the year 1 to 9999.
std::optional<Date> parse_date(std::string_view text);

/// How many columns a date becomes.
constexpr size_t date_parts(bool times) { return times ? 7 : 5; }
/// "when.days", "when.year_sin", ...
std::vector<std::string> date_column_names(const std::string& name, bool times);
/// Writes the first out.size() of the numbers.
void write_date(const Date& date, std::span<float> out);

}  // namespace trainyard
