#include "src/data/table/category_codes.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace trainyard {
namespace {

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

CategoryCodes::CategoryCodes(const std::vector<std::string>& names) {
  for (const std::string& name : names) add(name);
}

int32_t CategoryCodes::find(std::string_view name) const {
  const auto it = codes_.find(name);
  return it == codes_.end() ? -1 : it->second;
}

int32_t CategoryCodes::add(std::string_view name) {
  const auto it = codes_.find(name);
  if (it != codes_.end()) return it->second;
  const auto code = static_cast<int32_t>(codes_.size());
  codes_.emplace(std::string(name), code);
  return code;
}

std::vector<std::string> CategoryCodes::sorted(std::vector<int32_t>& new_codes) const {
  struct Entry {
    const std::string* name;
    int32_t code;
    std::optional<int64_t> number;
  };
  std::vector<Entry> entries;
  bool numbers = true;
  for (const auto& [name, code] : codes_) {
    entries.push_back({&name, code, whole_number(name)});
    numbers = numbers && entries.back().number.has_value();
  }
  std::sort(entries.begin(), entries.end(), [numbers](const Entry& a, const Entry& b) {
    if (numbers && *a.number != *b.number) return *a.number < *b.number;
    return *a.name < *b.name;
  });
  std::vector<std::string> names;
  new_codes.assign(entries.size(), 0);
  for (const Entry& e : entries) {
    new_codes[static_cast<size_t>(e.code)] = static_cast<int32_t>(names.size());
    names.push_back(*e.name);
  }
  return names;
}

}  // namespace trainyard
