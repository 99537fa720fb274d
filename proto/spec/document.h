// proto/spec/document.h: YAML and JSON as a tree with positions, read strictly.
//
// One reader for both syntaxes and for `--set path=value`. It refuses what YAML silently accepts
// but people do not mean: duplicate keys, anchors and aliases, tags, several documents, nesting
// over kDepthMax, files over kBytesMax. Scalars stay text here: the field decides what its
// value means (spec_message.h), so that `010`, `yes` and `.nan` are never guessed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"

namespace trainyard::spec {

/// JSON's grammar of numbers: no leading zeros or plus, digits on both sides of the point.
bool is_number(std::string_view text);
bool is_whole_number(std::string_view text);

inline constexpr int64_t kBytesMax = 1 << 20;
inline constexpr int kDepthMax = 32;
inline constexpr int kValuesMax = 100'000;
inline constexpr size_t kProblemsMax = 16;

/// Where a value was written. `source` is an index into Document::sources; line and column
/// count from 1, and 0 means that the source has no lines (`--set`).
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
  std::string text;            // scalar
  bool quoted = false;         // scalar: written in quotes or as a block, so it is text for certain
  std::vector<Value> items;    // sequence
  std::vector<Entry> entries;  // map, in the order of the file

  const Entry* find(std::string_view key) const;
  Entry* find(std::string_view key);
};

struct Entry {
  std::string key;
  Position key_at;
  Value value;
};

/// One thing wrong with a document. `field` is a path as the user would write it.
struct Problem {
  Position at;
  std::string reason;  // FIELD_UNKNOWN, FIELD_TYPE, ...
  std::string field;
  std::string description;
};

/// A step of a path: a key, or an index from 0.
struct PathSegment {
  std::string key;
  int64_t index = -1;  // >= 0: an item of a sequence
};

class Document {
 public:
  /// Reads `text`; `name` stands before each problem ("job.yaml:3:5: ..."). A text whose first byte
  /// that is not white space is `{` must be strict JSON; every other text is YAML. Adds what is
  /// wrong to `problems`; the document is then incomplete.
  static Document parse(std::string_view text, std::string name, std::vector<Problem>& problems);
  /// The same, with all problems as one refusal.
  static Result<Document> parse(std::string_view text, std::string name);

  /// `recipe.optimizer.learning_rate=0.1`, `model.layers[2].conv.strides=[2, 2]`. The value is
  /// YAML; an empty value or `null` removes the key. Missing maps on the path are created.
  void set(std::string_view assignment, std::vector<Problem>& problems);

  /// `recipe.optimizer.learning_rate=[0.1, 0.01]`: the values of a field in array.grid.
  void add_to_grid(std::string_view assignment, std::vector<Problem>& problems);

  /// In the place of the file's: what the option --name says.
  void set_name(const std::string& name);

  const Value& root() const { return root_; }
  /// Position of the value at `path`, or of the nearest value above it that exists.
  Position locate(std::string_view path) const;
  /// "job.yaml:3:5", "--set recipe.steps".
  std::string describe(const Position& at) const;
  /// "job.yaml:3:5: recipe.steps", and once "--set recipe.steps" or "--name".
  std::string describe(const Position& at, const std::string& field) const;
  /// All problems as one refusal: its violations have position and field; the message is the only
  /// problem or says how many there are.
  Error to_error(const std::vector<Problem>& problems) const;

 private:
  /// Puts a YAML value in the place of what the newest source names.
  void assign(const std::vector<PathSegment>& segments, const std::string& path,
              std::string_view value_text, std::vector<Problem>& problems);
  Position newest_source() const;

  Value root_;
  std::vector<std::string> sources_;
};

}  // namespace trainyard::spec
