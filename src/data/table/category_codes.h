// src/data/table/category_codes.h: maps the names of categories or classes to codes. Names that are
// equal in NFC are one, and are kept in NFC.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/table/category_form.h"

namespace trainyard {

class CategoryCodes {
 public:
  CategoryCodes() = default;
  /// Begins without names, for a column whose texts have this form.
  explicit CategoryCodes(CategoryForm form) : form_(form) {}
  /// Begins with a list of names; each name's code is its index.
  explicit CategoryCodes(const std::vector<std::string>& names);

  CategoryForm form() const { return form_; }
  /// Returns the code of the name; -1 for an unknown name. In a complete list
  /// of booleans, another spelling of the name is found too. Of whole numbers, `name` must be a
  /// whole_number_name().
  int32_t find(std::string_view name) const;
  /// Returns the code of the name, which is added if it is unknown.
  int32_t add(std::string_view name);
  int64_t count() const { return static_cast<int64_t>(names_.size()); }

  /// Returns all names in the order of their codes.
  const std::vector<std::string>& names() const { return names_; }
  /// Returns the names sorted (as numbers if all are whole numbers, else by bytes), with one name
  /// for all spellings of a boolean. Sets new_codes[code] to the index of the name with this code.
  std::vector<std::string> sorted(std::vector<int32_t>& new_codes) const;

 private:
  int32_t find_composed(std::string_view name) const;
  int32_t add_composed(std::string_view name);
  /// Returns the index of the name's slot, or of the free slot into which it can be inserted.
  size_t slot_of(std::string_view name, size_t hash) const;
  void grow();
  int32_t find_boolean(std::string_view text) const;
  std::vector<std::string> sorted_booleans(std::vector<int32_t>& new_codes) const;

  CategoryForm form_ = CategoryForm::kTexts;
  bool complete_ = false;  // no name is added, so that another spelling of one can be found
  std::vector<std::string> names_;  // name of each code
  std::vector<size_t> hashes_;      // hash of each code's name
  // Hash table of codes with linear probing; -1 is free. Its size is a power of two.
  std::vector<int32_t> slots_;
};

}  // namespace trainyard
