// src/data/table/category_codes.h: names of categories or classes and their codes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trainyard {

class CategoryCodes {
 public:
  CategoryCodes() = default;
  /// Codes of a fixed list: code = index.
  explicit CategoryCodes(const std::vector<std::string>& names);

  /// -1 if the name is not there.
  int32_t find(std::string_view name) const;
  /// The code of the name, which is added if it is new.
  int32_t add(std::string_view name);
  int64_t count() const { return static_cast<int64_t>(names_.size()); }

  /// In order of their codes.
  const std::vector<std::string>& names() const { return names_; }
  /// Sorts the names (as numbers if all are whole, else by bytes) and returns them; new_codes[old]
  /// is the place of each.
  std::vector<std::string> sorted(std::vector<int32_t>& new_codes) const;

 private:
  /// Where the name is, or the free slot in which it belongs.
  size_t slot_of(std::string_view name, size_t hash) const;
  void grow();

  std::vector<std::string> names_;  // by code
  std::vector<size_t> hashes_;      // by code
  std::vector<int32_t> slots_;  // codes by hash, with linear probing; -1 is free. A power of two
};

}  // namespace trainyard
