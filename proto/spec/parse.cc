#include "proto/spec/parse.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <unordered_set>
#include <utility>

#include "src/base/text.h"

namespace trainyard::spec {
namespace {

constexpr const char* kMalformed = "SPEC_MALFORMED";
constexpr const char* kNoAliases = "aliases (*name) are not supported; write out the value";

/// Thrown to stop a parse, which also works inside yaml-cpp's callbacks, where there is no other
/// way.
struct ParseStopped {
  Problem problem;
};

/// Builds the tree from the events of the YAML and JSON parsers, and enforces its limits. Uses a
/// stack of open containers instead of recursion.
class TreeBuilder {
 public:
  explicit TreeBuilder(std::vector<Problem>& problems) : problems_(problems) {}

  Value take_root() { return std::move(root_); }

  /// Returns the path of the next value.
  std::string next_path() const {
    if (open_.empty()) return "";
    const Open& top = open_.back();
    if (top.value.kind == Value::Kind::kSequence) {
      return top.path + "[" + std::to_string(top.value.items.size()) + "]";
    }
    if (!top.has_key) return top.path;
    return top.path.empty() ? top.key : top.path + "." + top.key;
  }

  [[noreturn]] void stop(const Position& at, std::string reason, std::string description) {
    throw ParseStopped{{at, std::move(reason), next_path(), std::move(description)}};
  }

  void open(const Position& at, Value::Kind kind) {
    count(at, /*may_be_key=*/false);
    if (open_.size() >= kDepthMax) {
      stop(at, "SPEC_TOO_DEEP", "nested more than " + std::to_string(kDepthMax) + " levels deep");
    }
    Open o;
    o.path = next_path();
    o.value.kind = kind;
    o.value.at = at;
    open_.push_back(std::move(o));
  }

  void close() {
    Value done = std::move(open_.back().value);
    open_.pop_back();
    add(std::move(done));
  }

  /// Adds a null, at the position of its key or list: yaml-cpp reports the position of what
  /// follows.
  void null(const Position& at) {
    count(at, /*may_be_key=*/false);
    Value value;
    value.at = at;
    if (!open_.empty()) {
      const Open& top = open_.back();
      value.at = top.value.kind == Value::Kind::kSequence ? top.value.at : top.key_at;
    }
    add(std::move(value));
  }

  /// Adds a scalar value, or the next key of a map.
  void scalar(const Position& at, const std::string& text, bool quoted) {
    count(at, /*may_be_key=*/true);
    if (awaits_key()) return start_entry(at, text);
    Value value;
    value.kind = Value::Kind::kScalar;
    value.at = at;
    value.text = text;
    value.quoted = quoted;
    add(std::move(value));
  }

 private:
  struct Open {
    Value value;
    std::string path;
    std::unordered_set<std::string> keys;
    std::string key;  // of the entry whose value comes next
    Position key_at;
    bool has_key = false;
    bool duplicate = false;
  };

  bool awaits_key() const {
    return !open_.empty() && open_.back().value.kind == Value::Kind::kMap && !open_.back().has_key;
  }

  void count(const Position& at, bool may_be_key) {
    if (++values_ > kValuesMax) {
      stop(at, "SPEC_TOO_LARGE", "more than " + std::to_string(kValuesMax) + " values");
    }
    if (!may_be_key && awaits_key()) stop(at, kMalformed, "a key must be plain text");
  }

  /// Returns whether the map contains the beginning of a tuple `(1, 1, 1)`. Between braces its
  /// commas end values, and its numbers become keys, which may then be equal.
  static bool in_tuple(const Value& map) {
    return std::ranges::any_of(
        map.entries, [](const Entry& entry) { return entry.value.text.starts_with('('); });
  }

  void start_entry(const Position& at, const std::string& key) {
    Open& top = open_.back();
    top.key = key;
    top.key_at = at;
    top.has_key = true;
    top.duplicate = !top.keys.insert(key).second;
    if (top.duplicate && problems_.size() < kProblemsMax) {
      problems_.push_back({at, "FIELD_DUPLICATE", next_path(),
                           "given twice, first in line " +
                               std::to_string(top.value.find(key)->key_at.line) +
                               (in_tuple(top.value) ? "; a list has square brackets" : "")});
    }
  }

  void add(Value value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return;
    }
    Open& top = open_.back();
    if (top.value.kind == Value::Kind::kSequence) {
      top.value.items.push_back(std::move(value));
      return;
    }
    if (!top.duplicate) {
      top.value.entries.push_back({std::move(top.key), top.key_at, std::move(value)});
    }
    top.has_key = false;
  }

  std::vector<Problem>& problems_;
  std::vector<Open> open_;
  Value root_;
  int values_ = 0;
};

/// Counts the characters of UTF-8 text, as editors count columns.
int count_characters(std::string_view text) {
  return static_cast<int>(std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

Position position_of_byte(std::string_view text, size_t byte, int source) {
  const std::string_view before = text.substr(0, std::min(byte, text.size()));
  // rfind() returns npos in the first line, which gives 0
  const size_t line_begin = before.rfind('\n') + 1;
  return {source, static_cast<int>(std::ranges::count(before, '\n')) + 1,
          count_characters(before.substr(line_begin)) + 1};
}

/// Converts byte offsets to columns, which are counted from 1 in characters. Each call continues
/// from the previous offset, so that a text with one long line takes linear time.
class Columns {
 public:
  explicit Columns(std::string_view text) : text_(text) {}

  int at(size_t offset, size_t line_begin) {
    offset = std::min(offset, text_.size());
    if (line_begin != line_begin_ || offset < offset_) {
      line_begin_ = offset_ = std::min(line_begin, offset);
      column_ = 1;
    }
    column_ += count_characters(text_.substr(offset_, offset - offset_));
    offset_ = offset;
    return column_;
  }

 private:
  std::string_view text_;
  size_t line_begin_ = 0;
  size_t offset_ = 0;
  int column_ = 1;
};

/// Passes yaml-cpp's events to the TreeBuilder.
class YamlReader final : public YAML::EventHandler {
 public:
  YamlReader(std::string_view text, int source, TreeBuilder& tree)
      : columns_(text), source_(source), tree_(tree) {}

  /// Converts the position of an event; yaml-cpp counts columns in bytes.
  Position position(const YAML::Mark& mark) {
    const auto end = static_cast<size_t>(std::max(mark.pos, 0));
    return {source_, mark.line + 1,
            columns_.at(end, end - std::min(static_cast<size_t>(std::max(mark.column, 0)), end))};
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) {
      tree_.stop(position(mark), kMalformed, "a second document; one file holds one spec");
    }
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    tree_.null(place(mark, "", anchor));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    tree_.stop(position(mark), "SPEC_ALIAS_UNSUPPORTED", kNoAliases);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    // yaml-cpp marks quoted scalars and blocks with the tag "!".
    tree_.scalar(place(mark, tag, anchor), text, tag == "!");
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    tree_.open(place(mark, tag, anchor), Value::Kind::kSequence);
  }
  void OnSequenceEnd() override { tree_.close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    tree_.open(place(mark, tag, anchor), Value::Kind::kMap);
  }
  void OnMapEnd() override { tree_.close(); }

 private:
  Position place(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    const Position at = position(mark);
    if (anchor != 0) tree_.stop(at, "SPEC_ALIAS_UNSUPPORTED", "anchors (&name) are not supported");
    if (!tag.empty() && tag != "?" && tag != "!") {
      tree_.stop(at, "SPEC_TAG_UNSUPPORTED", "tags are not supported, found " + quoted_value(tag));
    }
    return at;
  }

  Columns columns_;
  int source_;
  TreeBuilder& tree_;
  int documents_ = 0;
};

/// Parses strict JSON and records the position of each value. nlohmann-json, which has no
/// positions, decodes the strings. The recursion is limited by the tree's maximum depth.
class JsonReader {
 public:
  JsonReader(std::string_view text, int source, TreeBuilder& tree)
      : text_(text), columns_(text), source_(source), tree_(tree) {
    next();
  }

  void read() {
    value();
    if (!token_.empty()) refuse("expected the end of the text");
  }

 private:
  /// Reads the next token: a punctuation mark, a string with its quotes (not yet validated), a
  /// word, or nothing.
  void next() {
    const size_t begin = std::min(text_.find_first_not_of(" \t\r\n", end_), text_.size());
    for (size_t i = end_; i < begin; ++i) {
      if (text_[i] == '\n') ++line_, line_begin_ = i + 1;
    }
    at_ = {source_, line_, columns_.at(begin, line_begin_)};
    end_ = begin;
    if (begin < text_.size()) {
      end_ = text_[begin] == '"' ? string_end(begin)
             : std::string_view("{}[],:").find(text_[begin]) != std::string_view::npos
                 ? begin + 1
                 : std::min(text_.find_first_of(" \t\r\n{}[],:\"", begin), text_.size());
    }
    token_ = text_.substr(begin, end_ - begin);
  }
  /// Returns the offset after the closing quote of a string; after its opening quote if it is never
  /// closed.
  size_t string_end(size_t begin) const {
    for (size_t i = begin + 1; i < text_.size(); ++i) {
      if (text_[i] == '"') return i + 1;
      if (text_[i] == '\\') ++i;
    }
    return begin + 1;
  }

  [[noreturn]] void refuse(const std::string& problem) const {
    throw ParseStopped{{at_, kMalformed, "",
                        "not valid JSON (a text that begins with '{' is JSON): " + problem +
                            ", found " +
                            (token_.empty() ? "the end of the text" : quoted_value(token_))}};
  }

  std::string string() const {
    const auto decoded = nlohmann::json::parse(token_, nullptr, /*allow_exceptions=*/false);
    if (!decoded.is_string()) {
      refuse("expected a string that is closed and has only JSON's escapes");
    }
    return decoded.get<std::string>();
  }

  void value() {
    if (token_ == "{") return container(Value::Kind::kMap, "}");
    if (token_ == "[") return container(Value::Kind::kSequence, "]");
    if (token_.starts_with('"')) {
      tree_.scalar(at_, string(), /*quoted=*/true);
    } else if (token_ == "null") {
      tree_.null(at_);
    } else if (token_ == "true" || token_ == "false" || is_number(token_)) {
      tree_.scalar(at_, std::string(token_), /*quoted=*/false);
    } else {
      refuse("expected a value");
    }
    next();
  }

  void container(Value::Kind kind, std::string_view end) {
    tree_.open(at_, kind);
    next();
    for (bool more = token_ != end; more;) {
      if (kind == Value::Kind::kMap) key();
      value();
      more = token_ == ",";
      if (more) next();
    }
    if (token_ != end) refuse("expected ',' or '" + std::string(end) + "'");
    tree_.close();
    next();
  }

  void key() {
    if (!token_.starts_with('"')) refuse("expected a name in double quotes");
    tree_.scalar(at_, string(), /*quoted=*/true);
    next();
    if (token_ != ":") refuse("expected ':'");
    next();
  }

  std::string_view text_;
  Columns columns_;
  int source_;
  TreeBuilder& tree_;
  size_t end_ = 0;  // end of the token
  std::string_view token_;
  Position at_;
  int line_ = 1;
  size_t line_begin_ = 0;
};

/// Returns the offset and length of the first character that YAML considers unprintable.
std::optional<std::pair<size_t, size_t>> find_control(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if ((c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f) return {{i, 1}};
    const std::string_view rest = text.substr(i);
    if (c == 0xc2 && static_cast<unsigned char>(rest[1]) < 0xa0 && rest[1] != '\x85') {
      return {{i, 2}};
    }
    if (rest.starts_with("\xef\xbf\xbe") || rest.starts_with("\xef\xbf\xbf")) return {{i, 3}};
  }
  return std::nullopt;
}

/// Returns whether the indentation of line number `line` (from 1) contains a tab.
bool tab_indents(std::string_view text, int line) {
  size_t begin = 0;
  for (int i = 1; i < line && begin != text.npos; ++i) {
    begin = text.find('\n', begin);
    if (begin != text.npos) ++begin;
  }
  if (begin == text.npos) return false;
  const std::string_view rest = text.substr(begin);
  return rest.substr(0, rest.find_first_not_of(" \t")).find('\t') != rest.npos;
}

Problem malformed_yaml(const YAML::Exception& e, std::string_view text, YamlReader& reader,
                       const TreeBuilder& tree, int source) {
  Position at = reader.position(e.mark);
  // yaml-cpp reports this before the event for the alias
  if (e.msg.starts_with(YAML::ErrorMsg::UNKNOWN_ANCHOR)) {
    return {at, "SPEC_ALIAS_UNSUPPORTED", tree.next_path(), kNoAliases};
  }
  const Position end = position_of_byte(text, text.size(), source);
  if (at.line > end.line) at = end;  // the position is in the "..." that was appended
  std::string why = e.msg;
  if (e.msg == YAML::ErrorMsg::DOC_IN_SCALAR) why = "a quote is never closed";
  if (e.msg == YAML::ErrorMsg::MAP_VALUE) {
    why = tab_indents(text, at.line)
              ? "a tab indents this line, expected spaces"
              : "a field cannot begin on this line; is it indented like the lines around it, and "
                "does the line above have a space after the colon?";
  }
  return {at, kMalformed, "", "not valid YAML: " + why};
}

}  // namespace

Value parse_text(std::string_view text, int source, std::vector<Problem>& problems) {
  const auto refuse = [&](const Position& at, const char* reason, std::string description) {
    problems.push_back({at, reason, "", std::move(description)});
    return Value{};
  };
  if (text.size() > static_cast<size_t>(kBytesMax)) {
    return refuse({source, 0, 0}, "SPEC_TOO_LARGE",
                  "larger than " + human_bytes(kBytesMax) + ", the limit for a spec");
  }
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // a byte order mark
  if (const auto bad = find_invalid_utf8(text)) {
    return refuse(position_of_byte(text, *bad, source), kMalformed,
                  "not UTF-8 text: byte " + quoted_value(text.substr(*bad, 1)));
  }
  if (const auto control = find_control(text)) {
    const auto [offset, length] = *control;
    return refuse(position_of_byte(text, offset, source), kMalformed,
                  "the character " + quoted_value(text.substr(offset, length)) + " is not text");
  }

  TreeBuilder tree(problems);
  YamlReader yaml(text, source, tree);
  try {
    const size_t first = text.find_first_not_of(" \t\r\n");
    if (first != text.npos && text[first] == '{') {
      JsonReader(text, source, tree).read();
    } else {
      // "..." ends the document; without it yaml-cpp accepts a quoted scalar that is never closed.
      std::istringstream in(std::string(text) + "\n...\n");
      YAML::Parser parser(in);
      while (parser.HandleNextDocument(yaml)) {
      }
    }
  } catch (const ParseStopped& stopped) {
    problems.push_back(stopped.problem);
  } catch (const YAML::Exception& e) {
    problems.push_back(malformed_yaml(e, text, yaml, tree, source));
  }
  return tree.take_root();
}

}  // namespace trainyard::spec
