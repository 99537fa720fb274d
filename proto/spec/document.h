// proto/spec/document.h: a strictly parsed YAML or JSON text, as a tree with positions.
//
// There is one parser for both syntaxes and for `--set path=value`. It refuses what YAML silently
// accepts but people rarely intend: duplicate keys, anchors and aliases, tags, several documents,
// nesting deeper than kDepthMax, texts larger than kBytesMax. Scalars remain text: the type of the
// field determines the value (message.h), so that `010`, `yes` and `.nan` are never guessed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"

namespace trainyard::spec {

/// Returns whether the text is a number in JSON's grammar: no leading zeros or plus, digits on both
/// sides of the point.
bool is_number(std::string_view text);
bool is_whole_number(std::string_view text);

inline constexpr int64_t kBytesMax = 1 << 20;
inline constexpr int kDepthMax = 32;
inline constexpr int kValuesMax = 100'000;
inline constexpr size_t kProblemsMax = 16;

/// Where a value was written. `source` is an index into Document::sources_; line and column count
/// from 1, and 0 means that the source has no lines (`--set`).
struct Position {
  int source = 0;
  int line = 0;
  int column = 0;
};

struct Entry;

struct Value {
  enum class Kind : uint8_t { kNull, kScalar, kSequence, kMap };
  Kind kind = Kind::kNull;
  Position at;
  std::string text;     // for kScalar
  bool quoted = false;  // for kScalar: written in quotes or as a block, so it is certainly text
  std::vector<Value> items;    // for kSequence
  std::vector<Entry> entries;  // for kMap, in the order of the file

  const Entry* find(std::string_view key) const;
  Entry* find(std::string_view key);
};

struct Entry {
  std::string key;
  Position key_at;
  Value value;
};

/// One fault of a document. `field` is a path as the user would write it.
struct Problem {
  Position at;
  std::string reason;  // FIELD_UNKNOWN, FIELD_TYPE_INVALID, ...
  std::string field;
  std::string description;
};

/// One component of a path: a key, or an index from 0.
struct PathSegment {
  std::string key;
  int64_t index = -1;  // >= 0: an item of a sequence
};

class Document {
 public:
  /// Parses `text`; `name` precedes each problem ("job.yaml:3:5: ..."). A text whose first
  /// non-space byte is `{` must be strict JSON; every other text is YAML. Adds all faults to
  /// `problems`; the document is then incomplete.
  static Document parse(std::string_view text, std::string name, std::vector<Problem>& problems);
  /// Parses `text`, and returns all problems as one error.
  static Result<Document> parse(std::string_view text, std::string name);

  /// Assigns a value by its path: `recipe.optimizer.learning_rate=0.1`,
  /// `model.layers[2].conv.strides=[2, 2]`. The value is YAML; an empty value or `null` removes the
  /// key. Missing maps on the path are created.
  void set(std::string_view assignment, std::vector<Problem>& problems);

  /// Sets the values of a field in array.grid: `recipe.optimizer.learning_rate=[0.1, 0.01]`.
  void add_to_grid(std::string_view assignment, std::vector<Problem>& problems);

  /// Replaces the file's `name` by the value of the option --name.
  void set_name(const std::string& name);

  const Value& root() const { return root_; }
  /// Returns the position of the value at `path`, or of its nearest existing ancestor.
  Position locate(std::string_view path) const;
  /// Returns a position as text: "job.yaml:3:5" or "--set recipe.steps".
  std::string describe(const Position& at) const;
  /// Returns a position with a field: "job.yaml:3:5: recipe.steps"; "--set recipe.steps" and
  /// "--name" already name the field.
  std::string describe(const Position& at, const std::string& field) const;
  /// Converts all problems to one error. Its violations have position and field; its message is the
  /// only problem, or the number of problems.
  Error to_error(const std::vector<Problem>& problems) const;

 private:
  /// Assigns a YAML value to the path that the newest source names.
  void assign(const std::vector<PathSegment>& segments, const std::string& path,
              std::string_view value_text, std::vector<Problem>& problems);
  Position newest_source() const;

  Value root_;
  std::vector<std::string> sources_;
};

}  // namespace trainyard::spec
