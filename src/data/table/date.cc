#include "src/data/table/date.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numbers>

#include "src/base/check.h"
#include "src/base/text.h"
#include "src/data/table/csv_cell.h"

namespace trainyard {
namespace {

constexpr int64_t kDaySeconds = 86400;

/// Removes exactly `count` digits from the beginning of `text` and returns their value.
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

/// Removes a number of `least` to `most` digits and returns it.
std::optional<int> take_number(std::string_view& text, size_t least, size_t most) {
  size_t digits = 0;
  while (digits < text.size() && digits <= most && is_digit(text[digits])) ++digits;
  return digits < least || digits > most ? std::nullopt : take_digits(text, digits);
}

/// Removes the fraction of a second after its mark, "." or ",", if there is one.
std::optional<double> take_fraction(std::string_view& text) {
  if (!take(text, '.') && !take(text, ',')) return 0;
  double place = 1;
  double fraction = 0;
  size_t digits = 0;
  for (; digits < text.size() && is_digit(text[digits]); ++digits) {
    if (digits < 15) fraction += (text[digits] - '0') * (place /= 10);
  }
  if (digits == 0) return std::nullopt;
  text.remove_prefix(digits);
  return fraction;
}

/// Removes the minutes and seconds after an hour, ":30", ":30:05" or ":30:05.25", and returns their
/// seconds.
std::optional<double> take_minutes(std::string_view& text) {
  if (!take(text, ':')) return std::nullopt;
  const std::optional<int> minute = take_two(text, 59);
  if (!minute) return std::nullopt;
  if (!take(text, ':')) return 60.0 * *minute;
  const std::optional<int> second = take_two(text, 59);
  if (!second) return std::nullopt;
  const std::optional<double> fraction = take_fraction(text);
  if (!fraction) return std::nullopt;
  return 60.0 * *minute + *second + *fraction;
}

/// Removes "AM" or "PM" and returns the hour of the day, from 0.
std::optional<int> take_half_day(std::string_view& text, int hour) {
  std::string_view rest = text;
  (void)take(rest, ' ');
  const std::string mark = lower(rest.substr(0, 2));
  if (mark != "am" && mark != "pm") return hour;
  if (hour < 1 || hour > 12) return std::nullopt;
  text = rest.substr(2);
  return hour % 12 + (mark == "pm" ? 12 : 0);
}

/// Removes a time such as "12:30", "12:30:05.25" or "2:30 PM" and returns its seconds of the day.
std::optional<double> take_time(std::string_view& text) {
  const std::optional<int> hour = take_number(text, 1, 2);
  if (!hour || *hour > 23) return std::nullopt;
  const std::optional<double> minutes = take_minutes(text);
  if (!minutes) return std::nullopt;
  const std::optional<int> of_day = take_half_day(text, *hour);
  if (!of_day) return std::nullopt;
  return 3600.0 * *of_day + *minutes;
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

/// The numbers of a date as they are written, and the marks between them.
struct CalendarDate {
  int year = 0, month = 0, day = 0;
};

/// Removes a mark between the parts of a date: a point, a slash or a hyphen.
std::optional<char> take_date_mark(std::string_view& text) {
  if (text.empty() || std::string_view("./-").find(text[0]) == std::string_view::npos) {
    return std::nullopt;
  }
  const char mark = text[0];
  text.remove_prefix(1);
  return mark;
}

/// Removes "2026-01-31" or "2026/1/31". With hyphens, months and days have two digits (ISO 8601).
std::optional<CalendarDate> take_year_first(std::string_view& text) {
  const std::optional<int> year = take_digits(text, 4);
  const std::optional<char> mark = year ? take_date_mark(text) : std::nullopt;
  if (!mark) return std::nullopt;
  const size_t least = *mark == '-' ? 2 : 1;
  const std::optional<int> month = take_number(text, least, 2);
  if (!month || !take(text, *mark)) return std::nullopt;
  const std::optional<int> day = take_number(text, least, 2);
  if (!day) return std::nullopt;
  return CalendarDate{*year, *month, *day};
}

/// Removes a year of four digits, or of two.
std::optional<int> take_year(std::string_view& text) {
  constexpr int kPivot = 69;
  const size_t before = text.size();
  const std::optional<int> year = take_number(text, 2, 4);
  const size_t digits = before - text.size();
  if (!year || digits == 3) return std::nullopt;
  return digits == 4 ? *year : *year + (*year < kPivot ? 2000 : 1900);
}

/// Removes "31.01.2026" or, if the month is first, "1/31/26".
std::optional<CalendarDate> take_year_last(std::string_view& text, bool month_first) {
  const std::optional<int> first = take_number(text, 1, 2);
  const std::optional<char> mark = first ? take_date_mark(text) : std::nullopt;
  if (!mark) return std::nullopt;
  const std::optional<int> second = take_number(text, 1, 2);
  if (!second || !take(text, *mark)) return std::nullopt;
  const std::optional<int> year = take_year(text);
  if (!year) return std::nullopt;
  return month_first ? CalendarDate{*year, *first, *second} : CalendarDate{*year, *second, *first};
}

/// Removes the name of a month, whole or its first three letters, and returns its number.
std::optional<int> take_month_name(std::string_view& text) {
  static constexpr auto kMonths = std::to_array<std::string_view>(
      {"january", "february", "march", "april", "may", "june", "july", "august", "september",
       "october", "november", "december"});
  size_t letters = 0;
  while (letters < text.size() &&
         ((text[letters] | 0x20) >= 'a' && (text[letters] | 0x20) <= 'z')) {
    ++letters;
  }
  const std::string word = lower(text.substr(0, letters));
  for (size_t i = 0; i < kMonths.size(); ++i) {
    const bool is_short = word == kMonths[i].substr(0, 3) || (i == 8 && word == "sept");
    if (word != kMonths[i] && !is_short) continue;
    text.remove_prefix(letters);
    if (is_short) (void)take(text, '.');
    return static_cast<int>(i) + 1;
  }
  return std::nullopt;
}

/// Removes marks and spaces between a month's name and a number.
void take_gap(std::string_view& text) {
  const size_t end = std::min(text.find_first_not_of(" -/,."), text.size());
  text.remove_prefix(end);
}

/// Removes "6-Aug-09", "6 August 2009" or "Aug 6, 2009".
std::optional<CalendarDate> take_named_month(std::string_view& text) {
  std::optional<int> month = take_month_name(text);
  const bool month_first = month.has_value();
  if (month_first) take_gap(text);
  const std::optional<int> day = take_number(text, 1, 2);
  if (!day) return std::nullopt;
  take_gap(text);
  if (!month_first) {
    month = take_month_name(text);
    if (!month) return std::nullopt;
    take_gap(text);
  }
  const std::optional<int> year = take_year(text);
  if (!year) return std::nullopt;
  return CalendarDate{*year, *month, *day};
}

std::optional<CalendarDate> take_calendar_date(std::string_view& text, DateOrder order) {
  for (const auto& take_form : {take_year_first, take_named_month}) {
    std::string_view rest = text;
    if (const auto date = take_form(rest)) {
      text = rest;
      return date;
    }
  }
  if (order == DateOrder::kYearFirst) return std::nullopt;
  return take_year_last(text, order == DateOrder::kMonthFirst);
}

/// Returns the days since 1970-01-01; nullopt if there is no such day.
std::optional<int64_t> day_number(const CalendarDate& date) {
  if (date.year < 1) return std::nullopt;
  const std::chrono::year_month_day calendar{std::chrono::year(date.year),
                                             std::chrono::month(static_cast<unsigned>(date.month)),
                                             std::chrono::day(static_cast<unsigned>(date.day))};
  if (!calendar.ok()) return std::nullopt;
  return std::chrono::sys_days(calendar).time_since_epoch().count();
}

/// Reads "02:31:38", a time of day or a duration.
std::optional<Date> parse_time(std::string_view text) {
  const std::optional<int> hours = take_number(text, 1, 4);
  if (!hours) return std::nullopt;
  const std::optional<double> minutes = take_minutes(text);
  if (!minutes) return std::nullopt;
  const std::optional<int> of_day = take_half_day(text, *hours);
  if (!of_day || !text.empty()) return std::nullopt;
  Date date;
  date.has_time = true;
  date.day = *of_day / 24;
  date.seconds = 3600.0 * (*of_day % 24) + *minutes;
  return date;
}

}  // namespace

const char* name_of(DateOrder order) {
  switch (order) {
    case DateOrder::kYearFirst:
      return "";
    case DateOrder::kDayFirst:
      return "day_first";
    case DateOrder::kMonthFirst:
      return "month_first";
    case DateOrder::kTime:
      return "time";
  }
  return "";
}

std::optional<DateOrder> find_date_order(std::string_view name) {
  const auto found =
      std::ranges::find_if(kDateOrders, [&](DateOrder order) { return name == name_of(order); });
  return found == kDateOrders.end() ? std::nullopt : std::optional(*found);
}

std::optional<Date> parse_date(std::string_view text, DateOrder order) {
  if (order == DateOrder::kTime) return parse_time(text);
  const std::optional<CalendarDate> calendar = take_calendar_date(text, order);
  const std::optional<int64_t> day = calendar ? day_number(*calendar) : std::nullopt;
  if (!day) return std::nullopt;
  Date date;
  date.day = *day;
  if (text.empty()) return date;
  if (!take(text, 'T') && !take(text, 't') && !take(text, ' ')) return std::nullopt;
  const std::optional<double> seconds = take_time(text);
  if (!seconds) return std::nullopt;
  date.has_zone = !text.empty();
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

DateOrders possible_orders(std::string_view text) {
  DateOrders orders = 0;
  if (text.size() < 4) return orders;
  for (const DateOrder order : kDateOrders) {
    if (parse_date(text, order)) orders = static_cast<DateOrders>(orders | bit_of(order));
  }
  return orders;
}

std::optional<DateOrder> only_order(DateOrders orders) {
  std::optional<DateOrder> only;
  for (const DateOrder order : kDateOrders) {
    if ((orders & bit_of(order)) == 0) continue;
    if (order == DateOrder::kYearFirst) return order;
    if (only) return std::nullopt;
    only = order;
  }
  return only;
}

std::vector<std::string> date_column_names(const std::string& name, DateForm form) {
  static constexpr std::array<const char*, 7> kParts = {
      ".days", ".year_sin", ".year_cos", ".week_sin", ".week_cos", ".day_sin", ".day_cos"};
  static constexpr std::array<const char*, 3> kTimeParts = {".hours", ".day_sin", ".day_cos"};
  std::vector<std::string> names;
  for (size_t i = 0; i < date_parts(form); ++i) {
    names.push_back(name + (form.order == DateOrder::kTime ? kTimeParts.at(i) : kParts.at(i)));
  }
  return names;
}

namespace {

void copy_parts(std::span<const double> parts, double offset, std::span<float> out) {
  TRAINYARD_CHECK(out.size() <= parts.size(), "more columns than a date has");
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<float>(i == 0 ? parts[i] - offset : parts[i]);
  }
}

}  // namespace

void write_date(const Date& date, DateOrder order, double offset, std::span<float> out) {
  namespace chrono = std::chrono;
  const double turn = 2 * std::numbers::pi;
  const double in_day = date.seconds / static_cast<double>(kDaySeconds);
  const double day_sin = std::sin(turn * in_day), day_cos = std::cos(turn * in_day);
  if (order == DateOrder::kTime) {
    return copy_parts(std::array{date.hours(), day_sin, day_cos}, offset, out);
  }
  const chrono::sys_days day{chrono::days(date.day)};
  const chrono::year year = chrono::year_month_day(day).year();
  const auto day_of_year = (day - chrono::sys_days(year / chrono::January / 1)).count();
  const double in_year = turn * static_cast<double>(day_of_year) / (year.is_leap() ? 366 : 365);
  const double in_week = turn * (chrono::weekday(day).iso_encoding() - 1) / 7;
  copy_parts(std::array{date.days(), std::sin(in_year), std::cos(in_year), std::sin(in_week),
                        std::cos(in_week), day_sin, day_cos},
             offset, out);
}

}  // namespace trainyard
