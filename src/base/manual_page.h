// src/base/manual_page.h: builds a page for man(1) with the macros of man(7). Text is escaped, so
// that man(1) shows it unchanged.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trainyard {

class ManualPage {
 public:
  /// `section` is 1 for commands and 8 for daemons; `name` is the word that follows "man".
  ManualPage(std::string_view name, int section, std::string_view summary);

  void heading(std::string_view text);
  /// Empty lines of `text` separate paragraphs.
  void paragraph(std::string_view text);
  /// Adds lines that are not filled, in the font for code.
  void code(const std::vector<std::string>& lines);

  struct Word {
    std::string text;
    enum Font { kPlain, kBold, kItalic } font = kPlain;
  };
  /// Adds a separate line in several fonts, such as a synopsis.
  void line(const std::vector<Word>& words);
  /// Adds a term and, indented below it, its meaning.
  void item(const std::vector<Word>& term, std::string_view meaning);

  const std::string& source() const { return source_; }

 private:
  void fill(std::string_view text);
  void begin_paragraph();

  std::string source_;
  bool after_heading_ = false;  // a heading begins a paragraph itself, so the macro is left out
};

}  // namespace trainyard
