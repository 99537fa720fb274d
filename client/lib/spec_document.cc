#include "client/lib/spec_document.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <charconv>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <unordered_set>
#include <utility>

#include "src/base/files.h"
#include "src/base/text.h"

namespace trainyard::client {
namespace {

constexpr const char* kMalformed = "SPEC_MALFORMED";

/// Ends a parse from inside yaml-cpp's callbacks, which have no other way out.
struct ParseStopped {
  SpecProblem problem;
};

/// Builds the tree from yaml-cpp's events. A stack of open containers, no recursion.
class TreeBuilder final : public YAML::EventHandler {
 public:
  TreeBuilder(int source, std::vector<SpecProblem>& problems)
      : source_(source), problems_(problems) {}

  SpecValue take_root() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(open_value(mark, "?", anchor, SpecValue::Kind::kNull));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    stop(mark, "SPEC_ALIAS", "aliases (*name) are not supported, write the value out");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    SpecValue value = open_value(mark, tag, anchor, SpecValue::Kind::kScalar);
    value.quoted = tag == "!";  // how yaml-cpp marks quoted scalars and blocks
    if (awaits_key()) {
      start_entry(text, value.at);
      return;
    }
    value.text = text;
    add(std::move(value));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, SpecValue::Kind::kSequence);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, SpecValue::Kind::kMap);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    SpecValue value;
    std::string path;
    std::unordered_set<std::string> keys;
    std::string key;  // of the entry that waits for its value
    SpecPosition key_at;
    bool has_key = false;
    bool duplicate = false;
  };

  SpecPosition position(const YAML::Mark& mark) const {
    return {source_, mark.line + 1, mark.column + 1};
  }
  [[noreturn]] void stop(const YAML::Mark& mark, std::string reason, std::string description) {
    throw ParseStopped{{position(mark), std::move(reason), next_path(), std::move(description)}};
  }
  bool awaits_key() const {
    return !open_.empty() && open_.back().value.kind == SpecValue::Kind::kMap &&
           !open_.back().has_key;
  }
  std::string next_path() const {
    if (open_.empty()) return "";
    const Open& top = open_.back();
    if (top.value.kind == SpecValue::Kind::kSequence) {
      return top.path + "[" + std::to_string(top.value.items.size()) + "]";
    }
    if (!top.has_key) return top.path;
    return top.path.empty() ? top.key : top.path + "." + top.key;
  }

  SpecValue open_value(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       SpecValue::Kind kind) {
    if (anchor != 0) stop(mark, "SPEC_ALIAS", "anchors (&name) are not supported");
    if (!tag.empty() && tag != "?" && tag != "!") {
      stop(mark, "SPEC_TAG", "tags are not supported, found " + quoted_value(tag));
    }
    if (++values_ > kSpecValuesMax) {
      stop(mark, "SPEC_TOO_LARGE", "more than " + std::to_string(kSpecValuesMax) + " values");
    }
    if (kind != SpecValue::Kind::kScalar && awaits_key()) {
      stop(mark, kMalformed, "a key must be plain text");
    }
    SpecValue value;
    value.kind = kind;
    value.at = position(mark);
    return value;
  }

  void start_entry(const std::string& key, const SpecPosition& at) {
    Open& top = open_.back();
    top.key = key;
    top.key_at = at;
    top.has_key = true;
    top.duplicate = !top.keys.insert(key).second;
    if (top.duplicate && problems_.size() < kSpecProblemsMax) {
      problems_.push_back(
          {at, "FIELD_DUPLICATE", next_path(),
           "given twice, first in line " + std::to_string(top.value.find(key)->key_at.line)});
    }
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
            SpecValue::Kind kind) {
    SpecValue value = open_value(mark, tag, anchor, kind);
    if (open_.size() >= kSpecDepthMax) {
      stop(mark, "SPEC_TOO_DEEP",
           "nested more than " + std::to_string(kSpecDepthMax) + " levels deep");
    }
    Open o;
    o.path = next_path();
    o.value = std::move(value);
    open_.push_back(std::move(o));
  }

  void close() {
    SpecValue done = std::move(open_.back().value);
    open_.pop_back();
    add(std::move(done));
  }

  void add(SpecValue value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return;
    }
    Open& top = open_.back();
    if (top.value.kind == SpecValue::Kind::kSequence) {
      top.value.items.push_back(std::move(value));
      return;
    }
    if (!top.duplicate) {
      top.value.entries.push_back({std::move(top.key), top.key_at, std::move(value)});
    }
    top.has_key = false;
  }

  int source_;
  std::vector<SpecProblem>& problems_;
  std::vector<Open> open_;
  SpecValue root_;
  int values_ = 0;
};

SpecPosition position_of_byte(std::string_view text, size_t byte, int source) {
  const std::string_view before = text.substr(0, std::min(byte, text.size()));
  const auto line_begin = before.rfind('\n');
  const size_t column = line_begin == before.npos ? before.size() : before.size() - line_begin - 1;
  return {source, static_cast<int>(std::count(before.begin(), before.end(), '\n')) + 1,
          static_cast<int>(column) + 1};
}

/// Offset of the first byte that is not valid UTF-8, or that is NUL.
std::optional<size_t> find_bad_utf8(std::string_view s) {
  for (size_t i = 0; i < s.size();) {
    const auto c = static_cast<unsigned char>(s[i]);
    size_t length = 0;
    uint32_t code = 0;
    if (c == 0) return i;
    if (c < 0x80) {
      ++i;
      continue;
    }
    if (c >= 0xc2 && c < 0xe0) {
      length = 2, code = c & 0x1f;
    } else if (c >= 0xe0 && c < 0xf0) {
      length = 3, code = c & 0x0f;
    } else if (c >= 0xf0 && c < 0xf5) {
      length = 4, code = c & 0x07;
    } else {
      return i;
    }
    if (i + length > s.size()) return i;
    for (size_t k = 1; k < length; ++k) {
      const auto next = static_cast<unsigned char>(s[i + k]);
      if ((next & 0xc0) != 0x80) return i;
      code = code << 6 | (next & 0x3f);
    }
    const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
    if (overlong || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return i;
    i += length;
  }
  return std::nullopt;
}

/// Strict JSON, by nlohmann-json's SAX parser, which keeps no tree and does not recurse.
class JsonCheck final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::string problem;
  size_t byte = 0;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool key(string_t&) override { return true; }
  bool start_object(std::size_t) override { return true; }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& e) override {
    byte = position > 0 ? position - 1 : 0;
    problem = e.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 5: syntax error while ..."
    if (const auto colon = problem.find(": "); colon != problem.npos) problem.erase(0, colon + 2);
    return false;
  }
};

/// Offset of the bracket that opens a level beyond kSpecDepthMax in JSON.
std::optional<size_t> find_too_deep(std::string_view json) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (quoted && c == '\\') {
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && (c == '[' || c == '{')) {
      if (++depth > kSpecDepthMax) return i;
    } else if (!quoted && (c == ']' || c == '}')) {
      --depth;
    }
  }
  return std::nullopt;
}

struct PathSegment {
  std::string key;
  int64_t index = -1;  // >= 0: an item of a sequence
};

/// `a.b[2].c`. A key may hold anything but dots and brackets.
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
  if (segments.empty() || segments.size() > kSpecDepthMax) return std::nullopt;
  return segments;
}

Result<SpecValue> parse_tree(std::string_view text, int source,
                             std::vector<SpecProblem>& problems) {
  if (text.size() > static_cast<size_t>(kSpecBytesMax)) {
    problems.push_back({{source, 0, 0},
                        "SPEC_TOO_LARGE",
                        "",
                        "larger than " + human_bytes(kSpecBytesMax) + ", which no spec needs"});
    return SpecValue{};
  }
  if (const auto bad = find_bad_utf8(text)) {
    problems.push_back({position_of_byte(text, *bad, source), kMalformed, "",
                        "not UTF-8 text: byte " + quoted_value(text.substr(*bad, 1))});
    return SpecValue{};
  }
  if (text.starts_with("\xef\xbb\xbf"))
    text.remove_prefix(3);  // a byte order mark says nothing here

  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool json = first != text.npos && text[first] == '{';
  if (json) {
    if (const auto deep = find_too_deep(text)) {
      problems.push_back({position_of_byte(text, *deep, source), "SPEC_TOO_DEEP", "",
                          "nested more than " + std::to_string(kSpecDepthMax) + " levels deep"});
      return SpecValue{};
    }
    JsonCheck check;
    if (!nlohmann::json::sax_parse(text.begin(), text.end(), &check) && !check.problem.empty()) {
      problems.push_back(
          {position_of_byte(text, check.byte, source), kMalformed, "",
           "not valid JSON (a file that begins with '{' is JSON): " + check.problem});
      return SpecValue{};
    }
  }
  // "..." ends the document; yaml-cpp would otherwise accept a quoted scalar that never ends.
  std::istringstream in(std::string(text) + "\n...\n");
  TreeBuilder builder(source, problems);
  try {
    YAML::Parser parser(in);
    parser.HandleNextDocument(builder);
    SpecValue root = builder.take_root();
    std::vector<SpecProblem> ignored;
    TreeBuilder second(source, ignored);
    if (parser.HandleNextDocument(second)) {
      problems.push_back(
          {second.take_root().at, kMalformed, "", "a second document; one file holds one spec"});
    }
    return root;
  } catch (const ParseStopped& stopped) {
    problems.push_back(stopped.problem);
  } catch (const YAML::Exception& e) {
    SpecPosition at{source, e.mark.line + 1, e.mark.column + 1};
    const SpecPosition end = position_of_byte(text, text.size(), source);
    if (at.line > end.line) at = end;  // our "..." lies behind the text
    const bool open_quote = e.msg == YAML::ErrorMsg::DOC_IN_SCALAR;
    problems.push_back({at, kMalformed, "",
                        "not valid YAML: " + (open_quote ? "a quoted text never ends" : e.msg)});
  }
  return SpecValue{};
}

}  // namespace

const SpecEntry* SpecValue::find(std::string_view key) const {
  for (const SpecEntry& entry : entries) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}
SpecEntry* SpecValue::find(std::string_view key) {
  return const_cast<SpecEntry*>(std::as_const(*this).find(key));
}

Result<SpecDocument> SpecDocument::parse(std::string_view text, std::string name) {
  SpecDocument document;
  document.sources_.push_back(std::move(name));
  std::vector<SpecProblem> problems;
  ASSIGN_OR_RETURN(document.root_, parse_tree(text, 0, problems));
  if (problems.empty() && document.root_.kind != SpecValue::Kind::kMap) {
    problems.push_back({{0, 1, 1},
                        kMalformed,
                        "",
                        document.root_.kind == SpecValue::Kind::kNull
                            ? "empty, expected fields such as 'dataset:', 'model:' and 'recipe:'"
                            : "expected fields (name: value), found something else"});
  }
  if (!problems.empty()) return document.to_error(problems);
  return document;
}

Result<SpecDocument> SpecDocument::read(const std::filesystem::path& path) {
  if (path == "-") {
    std::string text;
    char buffer[65536];
    while (text.size() <= static_cast<size_t>(kSpecBytesMax) &&
           (std::cin.read(buffer, sizeof buffer) || std::cin.gcount() > 0)) {
      text.append(buffer, static_cast<size_t>(std::cin.gcount()));
    }
    return parse(text, "standard input");
  }
  auto text = read_file(path, kSpecBytesMax);
  if (!text.ok()) return std::move(text).error();
  return parse(*text, path.string());
}

Status SpecDocument::set(std::string_view assignment) {
  const size_t equals = assignment.find('=');
  const std::string path(assignment.substr(0, equals));
  sources_.push_back("--set " + path);
  const SpecPosition at{static_cast<int>(sources_.size()) - 1, 0, 0};
  const auto refuse = [&](std::string field, std::string description) -> Error {
    return to_error({{at, "FIELD_PATH", std::move(field), std::move(description)}});
  };
  const auto segments = parse_path(path);
  if (equals == assignment.npos || !segments) {
    return refuse("", quoted_value(assignment) +
                          " is no assignment, expected path=value such as recipe.epochs=5 or "
                          "model.layers[0].conv.strides=2");
  }

  // "v: VALUE" makes a block scalar context, so that plain text needs no quotes, as in a file.
  std::vector<SpecProblem> problems;
  std::string text = "v: ";
  text += assignment.substr(equals + 1);
  ASSIGN_OR_RETURN(SpecValue wrapped, parse_tree(text, at.source, problems));
  for (SpecProblem& problem : problems) problem.at = at;
  if (!problems.empty()) return to_error(problems);
  if (wrapped.entries.size() != 1 || wrapped.entries[0].key != "v") {
    return refuse(path, "the value " + quoted_value(assignment.substr(equals + 1)) +
                            " is not one YAML value");
  }
  SpecValue value = std::move(wrapped.entries[0].value);
  std::vector<SpecValue*> todo{&value};  // positions inside the value mean nothing to the user
  while (!todo.empty()) {
    SpecValue* v = todo.back();
    todo.pop_back();
    v->at = at;
    for (SpecValue& item : v->items) todo.push_back(&item);
    for (SpecEntry& entry : v->entries) entry.key_at = at, todo.push_back(&entry.value);
  }

  SpecValue* target = &root_;
  for (size_t i = 0; i < segments->size(); ++i) {
    const PathSegment& segment = (*segments)[i];
    const bool last = i + 1 == segments->size();
    if (segment.index >= 0) {
      if (target->kind != SpecValue::Kind::kSequence) return refuse(path, "is not a list");
      if (segment.index >= static_cast<int64_t>(target->items.size())) {
        return refuse(path, "the list has " + std::to_string(target->items.size()) +
                                " items, counted from 0");
      }
      target = &target->items[static_cast<size_t>(segment.index)];
      continue;
    }
    if (target->kind == SpecValue::Kind::kNull) {
      target->kind = SpecValue::Kind::kMap;
      target->at = at;
    }
    if (target->kind != SpecValue::Kind::kMap) {
      return refuse(path,
                    "has no field " + quoted_value(segment.key) + ": it is not a group of fields");
    }
    SpecEntry* entry = target->find(segment.key);
    if (last && value.kind == SpecValue::Kind::kNull) {
      std::erase_if(target->entries, [&](const SpecEntry& e) { return e.key == segment.key; });
      return {};
    }
    if (entry == nullptr) {
      target->entries.push_back({segment.key, at, SpecValue{}});
      entry = &target->entries.back();
      entry->value.at = at;
    }
    if (last) entry->key_at = at;
    target = &entry->value;
  }
  *target = std::move(value);
  return {};
}

SpecPosition SpecDocument::locate(std::string_view path) const {
  SpecPosition at = root_.at;
  const auto segments = parse_path(path);
  if (!segments) return at;
  const SpecValue* value = &root_;
  for (const PathSegment& segment : *segments) {
    if (segment.index >= 0) {
      if (segment.index >= static_cast<int64_t>(value->items.size())) break;
      value = &value->items[static_cast<size_t>(segment.index)];
      at = value->at;
      continue;
    }
    const SpecEntry* entry = value->find(segment.key);
    if (entry == nullptr) break;
    value = &entry->value;
    at = value->kind == SpecValue::Kind::kScalar ? value->at : entry->key_at;
  }
  return at;
}

std::string SpecDocument::describe(const SpecPosition& at) const {
  const std::string& source = sources_[static_cast<size_t>(at.source)];
  if (at.line == 0) return source;
  return source + ":" + std::to_string(at.line) + ":" + std::to_string(at.column);
}

Error SpecDocument::to_error(const std::vector<SpecProblem>& problems) const {
  Error error = make_error(ErrorCode::kInvalidArgument, problems.front().reason, "");
  for (const SpecProblem& problem : problems) {
    if (error.violations.size() == kSpecProblemsMax) break;
    const std::string position = describe(problem.at);
    error.violations.push_back(
        {problem.field.empty() ? position : position + ": " + problem.field, problem.description});
  }
  const FieldViolation& first = error.violations.front();
  error.message = problems.size() == 1
                      ? first.field + ": " + first.description
                      : sources_.front() + " has " + std::to_string(problems.size()) + " problems";
  return error;
}

}  // namespace trainyard::client
