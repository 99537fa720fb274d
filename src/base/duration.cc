#include "src/base/duration.h"

#include <array>
#include <charconv>
#include <utility>

namespace trainyard {
namespace {

constexpr std::array<std::pair<char, int64_t>, 4> kUnits = {
    {{'d', 24 * 3600}, {'h', 3600}, {'m', 60}, {'s', 1}}};
constexpr int64_t kCountMax = 1'000'000'000;

}  // namespace

std::optional<int64_t> parse_duration(std::string_view text) {
  int64_t count = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, count);
  if (error != std::errc() || count < 0 || count > kCountMax) return std::nullopt;
  const std::string_view unit(stop, static_cast<size_t>(end - stop));
  if (unit.empty() && count == 0) return 0;
  for (const auto& [name, seconds] : kUnits) {
    if (unit.size() == 1 && unit[0] == name) return count * seconds;
  }
  return std::nullopt;
}

std::string duration_text(int64_t seconds) {
  if (seconds == 0) return "0";
  for (const auto& [name, unit] : kUnits) {
    if (seconds % unit == 0) return std::to_string(seconds / unit) + name;
  }
  return std::to_string(seconds) + "s";
}

}  // namespace trainyard
