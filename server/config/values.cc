#include "server/config/values.h"

#include <yaml-cpp/yaml.h>

#include <charconv>
#include <set>
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

Result<int64_t> read_number(std::string_view name, std::string_view text, int64_t min,
                            int64_t max) {
  const std::optional<int64_t> value = parse_integer(text);
  if (value && *value >= min && *value <= max) return *value;
  return refuse(name, text, "a number from " + std::to_string(min) + " to " + std::to_string(max));
}

Result<int64_t> read_bytes(std::string_view name, std::string_view text, int64_t min) {
  constexpr int64_t kMax = int64_t{1} << 46;
  std::string_view digits = text;
  int64_t unit = 1;
  for (const auto& [suffix, size] : {std::pair<std::string_view, int64_t>{"KiB", 1 << 10},
                                     {"MiB", 1 << 20},
                                     {"GiB", 1 << 30},
                                     {"TiB", int64_t{1} << 40}}) {
    if (!digits.ends_with(suffix)) continue;
    digits.remove_suffix(suffix.size());
    unit = size;
    break;
  }
  const std::optional<int64_t> count = parse_integer(digits);
  if (count && *count >= min && *count <= kMax / unit) return *count * unit;
  return refuse(name, text, "a number of bytes, or a size such as 512MiB or 64GiB");
}

Result<double> read_price(std::string_view name, std::string_view text) {
  constexpr double kMax = 1e6;
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [behind, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || behind != end || !(value >= 0 && value <= kMax)) {
    return refuse(name, text, "a number from 0 to 1000000");
  }
  return value;
}

Status read_settings(
    std::string_view text, const std::string& origin,
    const std::function<bool(const std::string& key)>& repeats,
    const std::function<Status(const std::string& key, const std::string& value)>& take) {
  const auto refuse_at = [&](const YAML::Mark& mark, const std::string& what) {
    std::string where = origin;
    if (!mark.is_null()) where += ":" + std::to_string(mark.line + 1);
    return make_error(ErrorCode::kInvalidArgument, "CONFIG_INVALID", where + ": " + what);
  };
  try {
    const YAML::Node root = YAML::Load(std::string(text));
    if (root.IsNull()) return {};
    if (!root.IsMap()) return refuse_at(root.Mark(), "expected lines of the form `key: value`");
    std::set<std::string> seen;
    for (const auto& entry : root) {
      const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "";
      if (!seen.insert(key).second) {
        return refuse_at(entry.first.Mark(), "key '" + key + "' is given twice");
      }
      if (entry.second.IsSequence() && repeats(key)) {
        for (const YAML::Node& one : entry.second) {
          if (!one.IsScalar()) {
            return refuse_at(one.Mark(), key + " expects a list of plain values");
          }
          if (Status s = take(key, one.Scalar()); !s.ok()) {
            return refuse_at(one.Mark(), s.error().message);
          }
        }
        continue;
      }
      if (!entry.second.IsScalar()) {
        return refuse_at(entry.first.Mark(), quoted_value(key) + " expects one plain value");
      }
      if (Status s = take(key, entry.second.Scalar()); !s.ok()) {
        return refuse_at(entry.first.Mark(), s.error().message);
      }
    }
  } catch (const YAML::Exception& e) {
    return refuse_at(e.mark, "not YAML: " + e.msg);
  }
  return {};
}

}  // namespace trainyard::server
