#include "src/data/table/date.h"

#include <array>
#include <chrono>
#include <cmath>
#include <numbers>

#include "src/base/check.h"

namespace trainyard {
namespace {

constexpr int64_t kDaySeconds = 86400;

/// Removes exactly `count` digits from the begin of `text` and returns their value.
std::optional<int> take_digits(std::string_view& text, size_t count) {
  if (text.size() < count) return std::nullopt;
  int value = 0;
  for (const char c : text.substr(0, count)) {
    if (c < '0' || c > '9') return std::nullopt;
    value = 10 * value + (c - '0');
  }
  text.remove_prefix(count);
  return value;
}

bool take(std::string_view& text, char c) {
  if (!text.starts_with(c)) return false;
  text.remove_prefix(1);
  return true;
}

std::optional<int> take_two(std::string_view& text, int max) {
  const std::optional<int> value = take_digits(text, 2);
  return value && *value <= max ? value : std::nullopt;
}

/// Removes a time such as "12:30", "12:30:05" or "12:30:05.25" and returns its seconds of the day.
std::optional<double> take_time(std::string_view& text) {
  const std::optional<int> hour = take_two(text, 23);
  if (!hour || !take(text, ':')) return std::nullopt;
  const std::optional<int> minute = take_two(text, 59);
  if (!minute) return std::nullopt;
  double seconds = 3600.0 * *hour + 60.0 * *minute;
  if (!take(text, ':')) return seconds;
  const std::optional<int> second = take_two(text, 59);
  if (!second) return std::nullopt;
  seconds += *second;
  if (!take(text, '.') && !take(text, ',')) return seconds;
  double place = 1;
  double fraction = 0;
  size_t digits = 0;
  for (; digits < text.size() && text[digits] >= '0' && text[digits] <= '9'; ++digits) {
    if (digits < 15) fraction += (text[digits] - '0') * (place /= 10);
  }
  if (digits == 0) return std::nullopt;
  text.remove_prefix(digits);
  return seconds + fraction;
}

/// Removes a zone such as "Z", "+01:00", "-0530" or "+01", which may be missing, and returns its
/// offset from UTC in seconds.
std::optional<int64_t> take_zone(std::string_view& text) {
  if (text.empty() || take(text, 'Z') || take(text, 'z')) return 0;
  const bool behind = text.starts_with('-');
  if (!behind && !text.starts_with('+')) return std::nullopt;
  text.remove_prefix(1);
  const std::optional<int> hours = take_two(text, 23);
  if (!hours) return std::nullopt;
  std::optional<int> minutes = 0;
  if (!text.empty()) {
    (void)take(text, ':');
    minutes = take_two(text, 59);
  }
  if (!minutes) return std::nullopt;
  const int64_t ahead = 3600 * int64_t{*hours} + 60 * int64_t{*minutes};
  return behind ? -ahead : ahead;
}

}  // namespace

std::optional<Date> parse_date(std::string_view text) {
  const std::optional<int> year = take_digits(text, 4);
  if (!year || *year < 1 || !take(text, '-')) return std::nullopt;
  const std::optional<int> month = take_two(text, 12);
  if (!month || !take(text, '-')) return std::nullopt;
  const std::optional<int> day = take_two(text, 31);
  if (!day) return std::nullopt;
  const std::chrono::year_month_day calendar{std::chrono::year(*year),
                                             std::chrono::month(static_cast<unsigned>(*month)),
                                             std::chrono::day(static_cast<unsigned>(*day))};
  if (!calendar.ok()) return std::nullopt;
  Date date;
  date.day = std::chrono::sys_days(calendar).time_since_epoch().count();
  if (text.empty()) return date;
  if (!take(text, 'T') && !take(text, 't') && !take(text, ' ')) return std::nullopt;
  const std::optional<double> seconds = take_time(text);
  if (!seconds) return std::nullopt;
  const std::optional<int64_t> ahead = take_zone(text);
  if (!ahead || !text.empty()) return std::nullopt;
  date.has_time = true;
  date.seconds = *seconds - static_cast<double>(*ahead);
  const auto shift =
      static_cast<int64_t>(std::floor(date.seconds / static_cast<double>(kDaySeconds)));
  date.day += shift;
  date.seconds -= static_cast<double>(shift * kDaySeconds);
  return date;
}

std::vector<std::string> date_column_names(const std::string& name, bool times) {
  static constexpr std::array<const char*, 7> kParts = {
      ".days", ".year_sin", ".year_cos", ".week_sin", ".week_cos", ".day_sin", ".day_cos"};
  std::vector<std::string> names;
  for (size_t i = 0; i < date_parts(times); ++i) names.push_back(name + kParts[i]);
  return names;
}

void write_date(const Date& date, double offset, std::span<float> out) {
  namespace chrono = std::chrono;
  const chrono::sys_days day{chrono::days(date.day)};
  const chrono::year year = chrono::year_month_day(day).year();
  const auto day_of_year = (day - chrono::sys_days(year / chrono::January / 1)).count();
  const double turn = 2 * std::numbers::pi;
  const double in_day = date.seconds / static_cast<double>(kDaySeconds);
  const double in_year = turn * static_cast<double>(day_of_year) / (year.is_leap() ? 366 : 365);
  const double in_week = turn * (chrono::weekday(day).iso_encoding() - 1) / 7;
  const std::array<double, 7> parts = {
      date.days() - offset, std::sin(in_year),       std::cos(in_year),      std::sin(in_week),
      std::cos(in_week),    std::sin(turn * in_day), std::cos(turn * in_day)};
  TRAINYARD_CHECK(out.size() <= parts.size(), "more columns than a date has");
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(parts[i]);
}

}  // namespace trainyard
