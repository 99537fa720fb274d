// src/data/table/category_codes.h: names of categories or classes and their codes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
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
  int64_t count() const { return static_cast<int64_t>(codes_.size()); }

  /// Sorts the names (as numbers if all are whole, else by bytes) and returns them; new_codes[old]
  /// is the place of each.
  std::vector<std::string> sorted(std::vector<int32_t>& new_codes) const;

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
  };
  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> codes_;
};

}  // namespace trainyard
