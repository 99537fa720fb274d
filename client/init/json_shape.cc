#include "client/init/json_shape.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <vector>

namespace trainyard::init {
namespace {

enum class Kind : uint8_t { kScalar, kObject, kList };

/// A value within the document, as far as it describes a table.
struct Child {
  std::string name;  // of a member; empty for an element of a list
  Kind kind = Kind::kScalar;
  std::string first_name = {};     // of its own first member
  Kind first = Kind::kScalar;      // kind of its own first value
  bool has_values = false;         // whether there is one
  bool has_nested_values = false;  // whether one of the values is an object or a list
};

/// Collects the children of the first value of a text.
class Outline final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Kind top = Kind::kScalar;
  std::vector<Child> children;  // the first kChildrenMax
  bool several = false;         // whether another value follows the first one

  bool start_object(size_t) override { return open(Kind::kObject); }
  bool start_array(size_t) override { return open(Kind::kList); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (depth_ <= 2) names_[static_cast<size_t>(depth_)] = name;
    return true;
  }
  bool null() override { return value(Kind::kScalar); }
  bool boolean(bool) override { return value(Kind::kScalar); }
  bool number_integer(number_integer_t) override { return value(Kind::kScalar); }
  bool number_unsigned(number_unsigned_t) override { return value(Kind::kScalar); }
  bool number_float(number_float_t, const string_t&) override { return value(Kind::kScalar); }
  bool string(string_t&) override { return value(Kind::kScalar); }
  bool binary(binary_t&) override { return value(Kind::kScalar); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    several = closed_;  // the parser expected the end of the text
    return false;
  }

 private:
  static constexpr size_t kChildrenMax = 1000;

  bool value(Kind kind) {
    if (depth_ == 0) top = kind;
    if (depth_ == 1 && children.size() < kChildrenMax) children.push_back({names_[1], kind});
    if (depth_ == 2 && !children.empty()) note(kind);
    return true;
  }
  /// Notes a value of the last child.
  void note(Kind kind) {
    Child& child = children.back();
    if (!child.has_values) {
      child.first = kind;
      child.first_name = names_[2];
    }
    child.has_values = true;
    child.has_nested_values |= kind != Kind::kScalar;
  }
  bool open(Kind kind) {
    value(kind);
    ++depth_;
    return true;
  }
  bool close() {
    closed_ = --depth_ == 0;
    return true;
  }

  int64_t depth_ = 0;
  bool closed_ = false;
  std::array<std::string, 3> names_;  // by depth: the name of the member that is read
};

bool is_number(std::string_view name) {
  return !name.empty() && name.find_first_not_of("0123456789") == name.npos;
}

bool has_member(const std::vector<Child>& children, std::string_view name, Kind kind) {
  return std::ranges::any_of(children,
                             [&](const Child& c) { return c.name == name && c.kind == kind; });
}

/// Returns the shape of a document that is an object.
JsonShape shape_of_object(const std::vector<Child>& children) {
  const auto all = [&](auto matches) {
    return !children.empty() && std::ranges::all_of(children, matches);
  };
  if (has_member(children, "data", Kind::kList)) {
    if (has_member(children, "columns", Kind::kList)) return {JsonLayout::kSplit, ""};
    if (has_member(children, "schema", Kind::kObject)) return {JsonLayout::kTable, ""};
  }
  if (all([](const Child& c) { return c.kind == Kind::kObject && !c.has_nested_values; })) {
    const bool rows = all([](const Child& c) { return is_number(c.name); }) &&
                      !is_number(children.front().first_name);
    return {rows ? JsonLayout::kIndex : JsonLayout::kColumns, ""};
  }
  if (all([](const Child& c) { return c.kind == Kind::kList && !c.has_nested_values; })) {
    return {JsonLayout::kColumns, ""};
  }
  const auto rows = std::ranges::find_if(
      children, [](const Child& c) { return c.kind == Kind::kList && c.first == Kind::kObject; });
  if (rows != children.end()) return {JsonLayout::kMember, rows->name};
  return {};
}

JsonShape shape_of_list(const std::vector<Child>& children) {
  if (children.empty() || children.front().kind == Kind::kScalar) return {};
  const bool nested =
      std::ranges::any_of(children, [](const Child& c) { return c.has_nested_values; });
  const bool objects = children.front().kind == Kind::kObject;
  if (nested) return {objects ? JsonLayout::kNestedRows : JsonLayout::kNoTable, ""};
  return {JsonLayout::kRows, ""};
}

}  // namespace

JsonShape find_json_shape(std::string_view text) {
  Outline outline;
  nlohmann::json::sax_parse(text.begin(), text.end(), &outline);
  if (outline.top == Kind::kList) return shape_of_list(outline.children);
  const bool nested =
      std::ranges::any_of(outline.children, [](const Child& c) { return c.kind != Kind::kScalar; });
  if (outline.several) return {nested ? JsonLayout::kNestedLines : JsonLayout::kLines, ""};
  return nested ? shape_of_object(outline.children) : JsonShape{JsonLayout::kLines, ""};
}

}  // namespace trainyard::init
