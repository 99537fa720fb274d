#include "src/data/table/category_codes.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>

#include "src/base/unicode.h"

namespace trainyard {
namespace {

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

CategoryCodes::CategoryCodes(const std::vector<std::string>& names)
    : form_(form_of(names)), complete_(true) {
  for (const std::string& name : names) add(name);
}

int32_t CategoryCodes::find(std::string_view name) const {
  if (!is_quickly_nfc(name)) return find_composed(nfc(name));
  return find_composed(name);
}

int32_t CategoryCodes::find_composed(std::string_view name) const {
  if (slots_.empty()) return -1;
  const int32_t code = slots_[slot_of(name, std::hash<std::string_view>{}(name))];
  return code < 0 && complete_ && form_ == CategoryForm::kBooleans ? find_boolean(name) : code;
}

int32_t CategoryCodes::find_boolean(std::string_view text) const {
  const BooleanWords words = common_boolean_words(names_);
  const std::optional<bool> value = boolean_value(text, words);
  for (size_t code = 0; value && code < names_.size(); ++code) {
    if (boolean_value(names_[code], words) == value) return static_cast<int32_t>(code);
  }
  return -1;
}

int32_t CategoryCodes::add(std::string_view name) {
  if (!is_quickly_nfc(name)) return add_composed(nfc(name));
  return add_composed(name);
}

int32_t CategoryCodes::add_composed(std::string_view name) {
  if (2 * (names_.size() + 1) > slots_.size()) grow();
  const size_t hash = std::hash<std::string_view>{}(name);
  int32_t& slot = slots_[slot_of(name, hash)];
  if (slot < 0) {
    slot = static_cast<int32_t>(names_.size());
    names_.emplace_back(name);
    hashes_.push_back(hash);
  }
  return slot;
}

size_t CategoryCodes::slot_of(std::string_view name, size_t hash) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = hash & mask;
  for (; slots_[slot] >= 0; slot = (slot + 1) & mask) {
    const auto code = static_cast<size_t>(slots_[slot]);
    if (hashes_[code] == hash && names_[code] == name) break;
  }
  return slot;
}

void CategoryCodes::grow() {
  slots_.assign(std::max<size_t>(16, 2 * slots_.size()), -1);
  const size_t mask = slots_.size() - 1;
  for (size_t code = 0; code < names_.size(); ++code) {
    size_t slot = hashes_[code] & mask;
    while (slots_[slot] >= 0) slot = (slot + 1) & mask;
    slots_[slot] = static_cast<int32_t>(code);
  }
}

std::vector<std::string> CategoryCodes::sorted(std::vector<int32_t>& new_codes) const {
  if (form_ == CategoryForm::kBooleans) return sorted_booleans(new_codes);
  struct Entry {
    const std::string* name;
    int32_t code;
    std::optional<int64_t> number;
  };
  std::vector<Entry> entries;
  bool numbers = true;
  for (const std::string& name : names_) {
    entries.push_back({&name, static_cast<int32_t>(entries.size()), whole_number(name)});
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

std::vector<std::string> CategoryCodes::sorted_booleans(std::vector<int32_t>& new_codes) const {
  CategoryCodes merged;
  std::vector<int32_t> merged_codes;
  for (const std::string& name : boolean_names(names_)) merged_codes.push_back(merged.add(name));
  std::vector<std::string> names = merged.sorted(new_codes);
  for (int32_t& code : merged_codes) code = new_codes[static_cast<size_t>(code)];
  new_codes = std::move(merged_codes);
  return names;
}

}  // namespace trainyard
