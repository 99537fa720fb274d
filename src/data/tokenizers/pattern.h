// src/data/tokenizers/pattern.h: regular expressions as the programs that make tokenizer.json
// understand them, which is by Oniguruma's rules: the first alternative that matches wins, and
// classes are those of Unicode.
//
// Oniguruma itself is not linked: Debian has no archive of it for programs that are a single file,
// and patterns of files that are not trusted need few of its features and firm limits. Features
// that are not known are refused by name. A search is given up after a bounded number of steps;
// what it has not matched until then stays one piece.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "src/base/result.h"

namespace trainyard {

struct PatternProgram;

/// Const and thread-safe. Copies share the program.
class Pattern {
 public:
  /// Refusal: INVALID_ARGUMENT/TOKENIZER_INVALID, which begins with `field`.
  static Result<Pattern> compile(std::string_view expression, const std::string& field);
  /// A pattern that matches this text and nothing else.
  static Pattern literal(std::string_view text);

  /// Calls visit(begin, end) for each match in well-formed UTF-8, from left to right.
  void visit_matches(std::string_view text,
                     const std::function<void(size_t begin, size_t end)>& visit) const;

 private:
  std::shared_ptr<const PatternProgram> program_;  // null: the literal
  std::string literal_;
};

}  // namespace trainyard
