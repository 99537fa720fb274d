#include "proto/spec/document.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "proto/spec/parse.h"
#include "src/base/text.h"

namespace trainyard::spec {
namespace {

/// Parses a path such as `a.b[2].c`. A key may contain anything but dots and brackets.
std::optional<std::vector<PathSegment>> parse_path(std::string_view path) {
  std::vector<PathSegment> segments;
  size_t i = 0;
  bool key_allowed = true;
  while (i < path.size()) {
    if (path[i] == '[') {
      const size_t end = path.find(']', i);
      if (end == path.npos || segments.empty()) return std::nullopt;
      int64_t index = -1;
      const char* last = path.data() + end;
      const auto [stop, error] = std::from_chars(path.data() + i + 1, last, index);
      if (error != std::errc() || stop != last || index < 0) return std::nullopt;
      segments.push_back({"", index});
      i = end + 1;
      key_allowed = false;
      continue;
    }
    if (path[i] == '.') {
      if (segments.empty() || i + 1 == path.size()) return std::nullopt;
      ++i;
      key_allowed = true;
    }
    const size_t end = std::min(path.find_first_of(".[", i), path.size());
    if (end == i || !key_allowed) return std::nullopt;
    segments.push_back({std::string(path.substr(i, end - i)), -1});
    i = end;
    key_allowed = false;
  }
  if (segments.empty() || segments.size() > kDepthMax) return std::nullopt;
  return segments;
}

}  // namespace

bool is_whole_number(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  if (text.empty() || (text.size() > 1 && text[0] == '0')) return false;
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_number(std::string_view text) {
  const size_t e = text.find_first_of("eE");
  if (e != text.npos) {
    std::string_view exponent = text.substr(e + 1);
    if (exponent.starts_with('-') || exponent.starts_with('+')) exponent.remove_prefix(1);
    if (exponent.empty() || exponent.find_first_not_of("0123456789") != exponent.npos) return false;
    text = text.substr(0, e);
  }
  const size_t point = text.find('.');
  if (point == text.npos) return is_whole_number(text);
  const std::string_view fraction = text.substr(point + 1);
  return is_whole_number(text.substr(0, point)) && !fraction.empty() &&
         fraction.find_first_not_of("0123456789") == fraction.npos;
}

const Entry* Value::find(std::string_view key) const {
  for (const Entry& entry : entries) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}
Entry* Value::find(std::string_view key) {
  return const_cast<Entry*>(std::as_const(*this).find(key));
}

Document Document::parse(std::string_view text, std::string name, std::vector<Problem>& problems) {
  Document document;
  document.sources_.push_back(std::move(name));
  document.root_ = parse_text(text, 0, problems);
  if (problems.empty() && document.root_.kind == Value::Kind::kNull) {
    problems.push_back({{0, 1, 1}, "SPEC_MALFORMED", "", "empty, expected fields (name: value)"});
  } else if (problems.empty() && document.root_.kind != Value::Kind::kMap) {
    problems.push_back({document.root_.at, "SPEC_MALFORMED", "",
                        "expected fields (name: value), found something else"});
  }
  return document;
}

Result<Document> Document::parse(std::string_view text, std::string name) {
  std::vector<Problem> problems;
  Document document = parse(text, std::move(name), problems);
  if (!problems.empty()) return document.to_error(problems);
  return document;
}

void Document::set(std::string_view assignment, std::vector<Problem>& problems) {
  const size_t equals = assignment.find('=');
  const std::string path(assignment.substr(0, equals));
  sources_.push_back("--set " + path);
  const auto segments = parse_path(path);
  if (equals == assignment.npos || !segments) {
    return problems.push_back({newest_source(), "FIELD_PATH_INVALID", "",
                               quoted_value(assignment) +
                                   " is not an assignment, expected path=value such as "
                                   "recipe.epochs=5 or model.layers[0].conv.strides=2"});
  }
  assign(*segments, path, assignment.substr(equals + 1), problems);
}

void Document::add_to_grid(std::string_view assignment, std::vector<Problem>& problems) {
  const size_t equals = assignment.find('=');
  const std::string path(assignment.substr(0, equals));
  sources_.push_back("--grid " + path);
  if (equals == assignment.npos || !parse_path(path)) {
    return problems.push_back({newest_source(), "FIELD_PATH_INVALID", "",
                               quoted_value(assignment) +
                                   " is not a field with values, expected one such as "
                                   "'recipe.optimizer.learning_rate=[0.1, 0.01]'"});
  }
  assign({{"array", -1}, {"grid", -1}, {path, -1}}, path, assignment.substr(equals + 1), problems);
}

Position Document::newest_source() const { return {static_cast<int>(sources_.size()) - 1, 0, 0}; }

void Document::assign(const std::vector<PathSegment>& segments, const std::string& path,
                      std::string_view value_text, std::vector<Problem>& problems) {
  const Position at = newest_source();
  const auto refuse = [&](std::string description) {
    problems.push_back({at, "FIELD_PATH_INVALID", path, std::move(description)});
  };
  // Parsing "v: VALUE" puts VALUE into YAML's block context, in which plain text needs no quotes,
  // as in a file.
  // file.
  std::vector<Problem> of_value;
  std::string text = "v: ";
  text += value_text;
  Value wrapped = parse_text(text, at.source, of_value);
  for (Problem& problem : of_value) {  // positions inside the value do not help the user
    problem.at = at;
    problems.push_back(std::move(problem));
  }
  if (!of_value.empty()) return;
  if (wrapped.entries.size() != 1 || wrapped.entries[0].key != "v") {
    return refuse("the value " + quoted_value(value_text) + " is not a single YAML value");
  }
  Value value = std::move(wrapped.entries[0].value);
  std::vector<Value*> todo{&value};
  while (!todo.empty()) {
    Value* v = todo.back();
    todo.pop_back();
    v->at = at;
    for (Value& item : v->items) todo.push_back(&item);
    for (Entry& entry : v->entries) entry.key_at = at, todo.push_back(&entry.value);
  }

  Value* target = &root_;
  for (size_t i = 0; i < segments.size(); ++i) {
    const PathSegment& segment = segments[i];
    const bool last = i + 1 == segments.size();
    if (segment.index >= 0) {
      if (target->kind != Value::Kind::kSequence) return refuse("is not a list");
      if (segment.index >= static_cast<int64_t>(target->items.size())) {
        return refuse("out of range, the list has " + std::to_string(target->items.size()) +
                      " items, counted from 0");
      }
      target = &target->items[static_cast<size_t>(segment.index)];
      continue;
    }
    if (target->kind == Value::Kind::kNull) {
      target->kind = Value::Kind::kMap;
      target->at = at;
    }
    if (target->kind != Value::Kind::kMap) {
      return refuse("has no field " + quoted_value(segment.key) + ": it is not a group of fields");
    }
    Entry* entry = target->find(segment.key);
    if (last && value.kind == Value::Kind::kNull) {
      std::erase_if(target->entries, [&](const Entry& e) { return e.key == segment.key; });
      return;
    }
    if (entry == nullptr) {
      target->entries.push_back({segment.key, at, Value{}});
      entry = &target->entries.back();
      entry->value.at = at;
    }
    if (last) entry->key_at = at;
    target = &entry->value;
  }
  *target = std::move(value);
}

Position Document::locate(std::string_view path) const {
  Position at = root_.at;
  const Value* value = &root_;
  for (std::string_view rest = path; !rest.empty();) {
    if (rest.starts_with('[')) {
      size_t index = 0;
      const size_t end = std::min(rest.find(']'), rest.size());
      const auto [stop, error] = std::from_chars(rest.data() + 1, rest.data() + end, index);
      if (error != std::errc() || stop != rest.data() + end || end == rest.size()) break;
      if (index >= value->items.size()) break;
      value = &value->items[index];
      at = value->at;
      rest.remove_prefix(end + 1);
      continue;
    }
    if (rest.starts_with('.')) rest.remove_prefix(1);
    // A key may itself contain dots and brackets, because the keys of an array are paths; so the
    // longest match is used.
    const Entry* found = nullptr;
    for (const Entry& entry : value->entries) {
      const size_t size = entry.key.size();
      if (!rest.starts_with(entry.key) || (found != nullptr && size <= found->key.size())) continue;
      if (size == rest.size() || rest[size] == '.' || rest[size] == '[') found = &entry;
    }
    if (found == nullptr) break;
    value = &found->value;
    at = value->kind == Value::Kind::kScalar ? value->at : found->key_at;
    rest.remove_prefix(found->key.size());
  }
  return at;
}

std::string Document::describe(const Position& at) const {
  const std::string& source = sources_[static_cast<size_t>(at.source)];
  if (at.line == 0) return source;
  return source + ":" + std::to_string(at.line) + ":" + std::to_string(at.column);
}

std::string Document::describe(const Position& at, const std::string& field) const {
  const std::string position = describe(at);
  const bool is_named =
      field.empty() || position.ends_with(" " + field) || position == "--" + field;
  return is_named ? position : position + ": " + field;
}

void Document::set_name(const std::string& name) {
  sources_.emplace_back("--name");
  const Position at{static_cast<int>(sources_.size()) - 1, 0, 0};
  Entry* entry = root_.find("name");
  if (entry == nullptr) entry = &root_.entries.emplace_back(Entry{"name", at, Value{}});
  entry->key_at = at;
  entry->value = Value{};
  entry->value.kind = Value::Kind::kScalar;
  entry->value.text = name;
  entry->value.at = at;
}

Error Document::to_error(const std::vector<Problem>& problems) const {
  Error error = make_error(ErrorCode::kInvalidArgument, problems.front().reason, "");
  for (const Problem& problem : problems) {
    if (error.violations.size() == kProblemsMax) break;
    error.violations.push_back({describe(problem.at, problem.field), problem.description});
  }
  const FieldViolation& first = error.violations.front();
  error.message = problems.size() == 1
                      ? first.field + ": " + first.description
                      : sources_.front() + " has " + std::to_string(problems.size()) + " problems";
  return error;
}

}  // namespace trainyard::spec
