#include "server/config/values.h"

#include <charconv>
#include <utility>

#include "src/base/text.h"

namespace trainyard::server {

Error refuse(std::string_view name, std::string_view text, std::string expected) {
  return make_error(ErrorCode::kInvalidArgument, "CONFIG_INVALID",
                    std::string(name) + ": " + quoted_value(text) + " is not valid, expected " +
                        std::move(expected));
}

std::optional<int64_t> parse_integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<int64_t> parse_bytes(std::string_view text, int64_t min) {
  constexpr int64_t kMax = int64_t{1} << 50;
  int64_t unit = 1;
  for (const auto& [suffix, size] : {std::pair<std::string_view, int64_t>{"KiB", 1 << 10},
                                     {"MiB", 1 << 20},
                                     {"GiB", 1 << 30},
                                     {"TiB", int64_t{1} << 40}}) {
    if (!text.ends_with(suffix)) continue;
    text.remove_suffix(suffix.size());
    unit = size;
    break;
  }
  const std::optional<int64_t> count = parse_integer(text);
  if (!count || *count < min || *count > kMax / unit) return std::nullopt;
  return *count * unit;
}

}  // namespace trainyard::server
